from collections.abc import Callable
from typing import Any

import numba
import pytest

from evener.sim import kernel


def triple(value: int) -> int:
    return 3 * value


def test_compiled_functions_are_kept_on_disk_and_do_not_hold_the_interpreter() -> None:
    assert kernel.run.targetoptions["nogil"]
    assert kernel.run.stats.cache_path is not None


def test_where_no_folder_can_be_written_to_functions_are_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read_only(*, cache: bool = False, **options: Any) -> Callable[..., Any]:
        if cache:
            raise RuntimeError("cannot cache function 'triple': no locator available")
        return numba.njit(**options)

    monkeypatch.setattr(kernel, "njit", read_only)
    assert kernel.compiled(triple)(5) == 15
