import pytest

from evener.report.figures import format_change, format_share, memory_scale, time_scale


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([33, 7], ["33 ns", "7 ns"]),
        ([1_234_567, 1_000], ["1.235 ms", "0.001 ms"]),
        ([336_200_000], ["336.2 ms"]),
        ([12_345_678_901], ["12.35 s"]),
        ([0], ["0 ns"]),
    ],
)
def test_times_share_the_unit_of_the_longest(values: list[int], texts: list[str]) -> None:
    scale = time_scale(values)
    assert [scale.with_unit(value) for value in values] == texts


def test_memory_is_in_binary_units() -> None:
    scale = memory_scale([3 * 2**30, 2**29])
    assert [scale.with_unit(value) for value in (3 * 2**30, 2**29)] == ["3.000 GiB", "0.500 GiB"]
    assert memory_scale([]).with_unit(5) == "5 B"


def test_shares_and_changes() -> None:
    assert format_share(0.3478) == "34.8 %"
    assert [format_change(value) for value in (0.0318, -0.5, 0)] == ["+3.18 %", "-50.00 %", "equal"]
