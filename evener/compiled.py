"""Functions that are compiled: the inner loops over flat arrays of integers."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile on the first call and keep the result on disk where that is possible."""
    try:
        return cast(_Function, njit(cache=True, nogil=True)(function))
    except RuntimeError:  # no folder can be written to
        return cast(_Function, njit(nogil=True)(function))


def inlined(function: _Function) -> _Function:
    """Compile into each caller: for inner loops, as numba's calls copy the head of every array."""
    return cast(_Function, njit(inline="always", nogil=True)(function))
