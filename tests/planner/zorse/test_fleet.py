"""Collectives and messages by Zorse's formulas."""

import pytest

from evener.planner.zorse.fleet import Fleet, Gpu, MachineLink
from evener.planner.zorse.shares import shares
from evener.planner.zorse.split import split_groups

FLEET = Fleet(
    gpus=tuple(Gpu(machine, "any", 0) for machine in "aabb"),
    links={
        ("a", "a"): MachineLink(8e9, 2.0),
        ("b", "b"): MachineLink(4e9, 2.0),
        ("a", "b"): MachineLink(1e9, 5.0),
    },
    layers={},
)


def test_a_ring_is_as_fast_as_its_slowest_link() -> None:
    """4 GPUs, 400 MB: three steps of 100 MB at 1 GB/s, 300 ms, and 15 %; alone in a: 200 at 8."""
    assert FLEET.ring_ms((0, 1, 2, 3), 400_000_000) == pytest.approx(345.0)
    assert FLEET.ring_ms((0, 1), 400_000_000) == pytest.approx(1.15 * 25.0)
    assert FLEET.ring_ms((2,), 400_000_000) == 0.0


def test_messages_below_10_mb_are_latency() -> None:
    """5 MB: 5 ms x (0.8 + 0.1); 11 MB: 5 ms and 1 MB at 1 GB/s. The link is one of either order."""
    assert FLEET.message_ms((0,), (2,), 5_000_000) == pytest.approx(4.5)
    assert FLEET.message_ms((3,), (1,), 11_000_000) == pytest.approx(6.0)


def test_split_cuts_where_links_are_slow() -> None:
    """Between the machines four links of weight 1; then inside b, which weighs 4 against 8."""
    assert split_groups(FLEET, 1) == ((0, 1, 2, 3),)
    assert split_groups(FLEET, 2) == ((0, 1), (2, 3))
    assert split_groups(FLEET, 3) == ((0, 1), (2,), (3,))


def test_shares_round_down_and_give_the_rest_to_the_fastest() -> None:
    """10 at 1 : 2 : 2 are 2, 4, 4; 11 are 2.2, 4.4, 4.4, and the first of the fastest has one."""
    assert shares(10, [1.0, 2.0, 2.0]) == (2, 4, 4)
    assert shares(11, [1.0, 2.0, 2.0]) == (2, 5, 4)
