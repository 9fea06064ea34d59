"""A line is found again, and both directions of every pair are measured."""

import pytest

from evener.cost.profile import LinkCost
from evener.errors import UsageError
from evener.profiler.links import SIZES_BYTES, fit_link, measure_links, typical_links
from evener.spec.cluster import Link
from evener.testing.memory_transport import MemoryTransport, run_in_memory


def test_sizes_reach_from_1_kib_to_16_mib() -> None:
    assert SIZES_BYTES[0] == 1024
    assert SIZES_BYTES[-1] == 16 * 2**20


def test_a_line_is_found_exactly() -> None:
    # 90 us there and 90 us back, 1.25 GB/s is 0.8 ns per byte.
    times_ns = [2 * 90_000 + 0.8 * size for size in SIZES_BYTES]
    assert fit_link(SIZES_BYTES, times_ns) == Link(90_000, 1_250_000_000)


def test_small_messages_count_as_much_as_large_ones() -> None:
    times_ns = [200_000 + size for size in SIZES_BYTES]
    times_ns[-1] *= 1.1  # absolute errors would put it into the latency: 1.8 ms
    assert fit_link(SIZES_BYTES, times_ns).latency_ns == pytest.approx(100_000, rel=0.1)


def test_times_that_do_not_grow_mean_no_limit() -> None:
    assert fit_link([1, 2, 3], [600, 500, 400]) == Link(250, 0)


def test_latency_is_never_negative() -> None:
    # The line has slope 1 and begins at -500. Through 0, with r = size / time = 2 and 4/3, the
    # slope is (2 + 4/3) / (4 + 16/9) = 30/52 ns per byte.
    assert fit_link([1000, 2000], [500, 1500]) == Link(0, round(52e9 / 30))


def link(source: str, target: str, latency_ns: int, bytes_per_s: int) -> LinkCost:
    return LinkCost(
        from_device=source, to_device=target, latency_ns=latency_ns, bytes_per_s=bytes_per_s
    )


def test_alike_links_are_one() -> None:
    type_of = {"a": "cpu", "b": "cpu", "c": "gpu"}
    links = [link("a", "b", 10, 100), link("b", "a", 30, 300), link("a", "c", 5, 7)]
    assert typical_links(links, type_of) == (link("cpu", "cpu", 20, 200), link("cpu", "gpu", 5, 7))


def test_all_workers_get_both_directions_of_all_pairs() -> None:
    calls: list[tuple[int, int]] = []

    def work(transport: MemoryTransport) -> tuple[LinkCost, ...]:
        return measure_links(
            transport,
            ["a", "b", "c"],
            sizes_bytes=[8, 64],
            progress=lambda *state: calls.append(state) if transport.worker == 0 else None,
        )

    first, *others = run_in_memory(3, work)
    assert [(found.from_device, found.to_device) for found in first] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "a"),
        ("b", "c"),
        ("c", "a"),
        ("c", "b"),
    ]
    assert all(found.latency_ns > 0 for found in first)
    assert others == [first, first]
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_only_chosen_pairs_are_measured() -> None:
    def work(transport: MemoryTransport) -> tuple[LinkCost, ...]:
        return measure_links(transport, ["a", "b", "c"], pairs=[(2, 1)], sizes_bytes=[8, 64])

    assert {(found.from_device, found.to_device) for found in run_in_memory(3, work)[0]} == {
        ("c", "b"),
        ("b", "c"),
    }


def test_devices_and_pairs_must_fit_the_workers() -> None:
    def work(transport: MemoryTransport) -> None:
        measure_links(transport, ["a"], pairs=[(0, 0), (0, 2)])

    with pytest.raises(UsageError) as caught:
        run_in_memory(2, work)
    assert caught.value.violations == (
        "1 devices are named, but there are 2 workers; name one device for each",
        "workers 0 and 0 are not two of the 2 workers",
        "workers 0 and 2 are not two of the 2 workers",
    )
