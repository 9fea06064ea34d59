"""Functions that are compiled: the inner loops over flat arrays of integers."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., Any])

_UNCOUNTED: dict[str, Any] = {"nogil": True, "_nrt": False}


def compiled(function: _Function) -> _Function:
    """Compile on the first call and keep the result on disk where that is possible."""
    try:
        return cast(_Function, njit(cache=True, nogil=True)(function))
    except RuntimeError:  # no folder can be written to
        return cast(_Function, njit(nogil=True)(function))


def uncounted(function: _Function) -> _Function:
    """``compiled``, without counting references to arrays, which can take half of the time.

    Nothing can be allocated inside.
    """
    try:
        return cast(_Function, njit(cache=True, **_UNCOUNTED)(function))
    except RuntimeError:  # no folder can be written to
        return cast(_Function, njit(**_UNCOUNTED)(function))


def inlined(function: _Function) -> _Function:
    """Compile into each caller: for inner loops, as numba's calls copy the head of every array."""
    return cast(_Function, njit(inline="always", nogil=True)(function))
