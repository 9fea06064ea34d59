from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evener.cost.network import (
    all_gather_ns,
    all_reduce_ns,
    all_to_all_ns,
    broadcast_ns,
    reduce_scatter_ns,
    send_ns,
    slowest,
    transfer_ns,
)
from evener.spec.cluster import Link

COLLECTIVES = [all_gather_ns, all_reduce_ns, all_to_all_ns, broadcast_ns, reduce_scatter_ns]
LINKS = st.builds(Link, st.integers(0, 10**9), st.integers(0, 10**12))
SIZES = st.integers(0, 10**15)
MEMBERS = st.integers(1, 5000)


@pytest.mark.parametrize(
    ("num_bytes", "bytes_per_s", "expected_ns"),
    [
        (1000, 10**9, 1000),
        (1000, 3 * 10**9, 334),  # 333.3 rounded up
        (1, 10**12, 1),
        (0, 10**9, 0),
        (10**15, 0, 0),  # no limit
        (10**15, 10**9, 10**15),  # more than 64 bits in between
    ],
)
def test_transfer(num_bytes: int, bytes_per_s: int, expected_ns: int) -> None:
    assert transfer_ns(num_bytes, bytes_per_s) == expected_ns


def test_a_message_is_its_latency_and_its_transfer() -> None:
    assert send_ns(4000, Link(50, 2 * 10**9)) == 50 + 2000
    assert send_ns(0, Link(50, 2 * 10**9)) == 0


@pytest.mark.parametrize(
    ("collective", "num_rounds", "num_parts"),
    [
        (all_gather_ns, 3, 4),
        (reduce_scatter_ns, 3, 4),
        (all_reduce_ns, 6, 4),
        (all_to_all_ns, 3, 4),
        (broadcast_ns, 2, 1),  # 1 member, then 2, then all 4; each time the whole
    ],
)
def test_collectives_of_four(collective, num_rounds: int, num_parts: int) -> None:
    # 8000 bytes at 1 byte/ns; each round takes the latency of 7 ns and pushes one part.
    expected_ns = num_rounds * (7 + 8000 // num_parts)
    assert collective(8000, 4, Link(7, 10**9)) == expected_ns


def test_a_part_of_a_byte_is_not_lost_in_every_round() -> None:
    # 2 * 6 / 7 * 10 bytes = 17.14 bytes in 12 rounds: 18 ns, and not 12 * ceil(10 / 7) = 24.
    assert all_reduce_ns(10, 7, Link(0, 10**9)) == 18


@pytest.mark.parametrize(("num_members", "num_rounds"), [(1, 0), (2, 1), (3, 2), (5, 3), (8, 3)])
def test_rounds_of_a_broadcast(num_members: int, num_rounds: int) -> None:
    assert broadcast_ns(100, num_members, Link(5, 10**9)) == num_rounds * 105


@pytest.mark.parametrize("collective", COLLECTIVES)
@given(size=SIZES, members=MEMBERS, link=LINKS)
def test_no_work_takes_no_time(collective, size: int, members: int, link: Link) -> None:
    assert collective(0, members, link) == 0
    assert collective(size, 1, link) == 0
    assert collective(size, members, Link(0, 0)) == 0


@pytest.mark.parametrize("collective", COLLECTIVES)
@given(size=SIZES, members=MEMBERS, link=LINKS, more=st.integers(0, 10**9))
def test_more_takes_no_less(collective, size: int, members: int, link: Link, more: int) -> None:
    time_ns = collective(size, members, link)
    assert 0 <= time_ns <= collective(size + more, members, link)
    assert time_ns <= collective(size, members, link._replace(latency_ns=link.latency_ns + more))
    if link.bytes_per_s:
        faster = link._replace(bytes_per_s=link.bytes_per_s + more)
        assert collective(size, members, faster) <= time_ns
    assert time_ns <= collective(size, members + 1, link)


def test_the_slowest_link_is_the_worst_of_both() -> None:
    links = [Link(5, 10**9), Link(9, 4 * 10**9), Link(1, 0)]
    for order in permutations(links):
        assert slowest(order) == Link(9, 10**9)
    assert slowest([Link(3, 0)]) == Link(3, 0)
    assert slowest([]) == Link(0, 0)
