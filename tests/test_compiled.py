from collections.abc import Callable
from typing import Any

import numba
import pytest

from evener import compiled


def triple(value: int) -> int:
    return 3 * value


def test_where_no_folder_can_be_written_to_functions_are_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read_only(*, cache: bool = False, **options: Any) -> Callable[..., Any]:
        if cache:
            raise RuntimeError("cannot cache function 'triple': no locator available")
        return numba.njit(**options)

    monkeypatch.setattr(compiled, "njit", read_only)
    assert compiled.compiled(triple)(5) == 15


def test_inlined_functions_are_part_of_their_callers() -> None:
    inner = compiled.inlined(triple)

    def outer(value: int) -> int:
        return inner(value) + 1

    assert numba.njit(outer)(5) == 16
