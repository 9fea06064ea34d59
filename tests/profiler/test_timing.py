import time

import pytest
import torch

from evener.errors import UsageError
from evener.profiler.timing import median_ns, one_thread, relative_spread, stopwatch


def test_a_stopwatch_gives_the_result_and_the_time() -> None:
    result, elapsed_ns = stopwatch(torch.device("cpu")).time(lambda: time.sleep(0.01) or 7)
    assert result == 7
    assert elapsed_ns >= 10_000_000


def test_other_devices_are_refused() -> None:
    with pytest.raises(UsageError, match='device of type "meta"; use "cpu" or "cuda"'):
        stopwatch(torch.device("meta"))


def test_the_median_is_a_whole_number() -> None:
    assert median_ns([1, 2, 4, 100]) == 3


def test_the_spread_is_relative() -> None:
    # Quartiles of 1..5 are 2 and 4, the median is 3.
    assert relative_spread([5, 3, 1, 4, 2]) == pytest.approx(2 / 3)
    assert relative_spread([7]) == 0.0
    assert relative_spread([0, 0, 9]) == 0.0


def test_the_number_of_threads_comes_back() -> None:
    before = torch.get_num_threads()
    with one_thread(torch.device("cpu")):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
