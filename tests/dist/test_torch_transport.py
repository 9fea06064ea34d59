"""Gloo, and shared memory, between processes keep what is promised of every transport."""

import time
import weakref

import pytest
import torch

from evener.executor.launch import Rank, run_workers
from evener.executor.shared_memory import SharedMemoryTransport
from evener.executor.torch_transport import TorchTransport
from evener.testing.transport_conformance import GROUPS, NUM_WORKERS, PAIRS, TRANSPORT_CHECKS

pytestmark = pytest.mark.dist


def connect(rank: Rank, kind: type[TorchTransport] = TorchTransport) -> TorchTransport:
    return kind(
        rank.store, worker=rank.index, num_workers=rank.num_ranks, pairs=PAIRS, groups=GROUPS
    )


@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", [TorchTransport, SharedMemoryTransport])
def test_between_processes(kind, check) -> None:
    def work(rank: Rank) -> None:
        transport = connect(rank, kind)
        check(transport)
        transport.close()

    run_workers(work, NUM_WORKERS, timeout_s=30)


def test_what_has_arrived_is_not_kept() -> None:
    """Large sent buffers are let go soon after they have arrived, not at the end of the step."""

    def work(rank: Rank) -> bool:
        transport = connect(rank)
        is_gone = True
        if rank.index == 0:
            tensor = torch.zeros(4_000_000)
            kept = weakref.ref(tensor.untyped_storage())
            transport.send(1, "key", (tensor,))
            del tensor
            transport.receive(1, "answer").wait()
            deadline = time.monotonic() + 2
            while kept() is not None and time.monotonic() < deadline:
                time.sleep(0.01)
            is_gone = kept() is None
        elif rank.index == 1:
            transport.receive(0, "key").wait()
            transport.send(0, "answer", (torch.zeros(1),))
        transport.close()
        return is_gone

    assert run_workers(work, NUM_WORKERS, timeout_s=30) == [True, True, True]
