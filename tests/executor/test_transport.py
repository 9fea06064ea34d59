"""The in-memory transport keeps what is promised of every transport."""

import pytest

from evener.executor.transport import connections
from evener.ir.passes import lower
from evener.schedules import ScheduleShape, gpipe
from evener.testing.memory_transport import run_in_memory
from evener.testing.transport_conformance import NUM_WORKERS, TRANSPORT_CHECKS


@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
def test_in_memory(check) -> None:
    run_in_memory(NUM_WORKERS, check)


def test_a_failed_worker_ends_those_who_wait_for_it() -> None:
    def fail(transport) -> None:
        if transport.worker == 1:
            raise ValueError("boom")
        transport.receive(1, "key").wait()

    with pytest.raises(ValueError, match="boom"):
        run_in_memory(3, fail)


def test_a_message_that_never_comes_is_an_error() -> None:
    with pytest.raises(TimeoutError, match=r"0\.01 s were not enough"):
        run_in_memory(1, lambda transport: transport.receive(0, "key").wait(), timeout_s=0.01)


def test_a_broken_transport_is_noticed() -> None:
    def swap(transport) -> None:
        send = transport.send
        held: list = []

        def send_in_reverse(peer, key, tensors) -> None:
            held.append((peer, key, tensors))
            if len(held) == 2:
                for one in reversed(held):
                    send(*one)
                held.clear()

        transport.send = send_in_reverse
        TRANSPORT_CHECKS[0](transport)

    with pytest.raises(AssertionError):
        run_in_memory(NUM_WORKERS, swap, timeout_s=5)


def test_connections_are_the_pairs_and_groups_of_a_schedule() -> None:
    pairs, groups = connections(lower(gpipe(ScheduleShape(3, 2)), clip=True))
    assert pairs == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert groups == [(0, 1, 2)]  # NORM
