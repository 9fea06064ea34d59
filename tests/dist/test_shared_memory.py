"""Messages through shared memory: who gets it, and what it does with its memory."""

import os
from itertools import pairwise

import pytest
import torch
from torch.distributed import HashStore

from evener.executor import shared_memory
from evener.executor.launch import Rank, run_workers
from evener.executor.shared_memory import SharedMemoryTransport, transport_for
from evener.executor.torch_transport import TorchTransport

pytestmark = pytest.mark.dist

CPU = torch.device("cpu")


def connect(rank: Rank, *, timeout_s: float = 20.0) -> SharedMemoryTransport:
    return SharedMemoryTransport(
        rank.store, worker=rank.index, num_workers=2, pairs=[(0, 1)], timeout_s=timeout_s
    )


def test_processes_of_one_machine_share_memory() -> None:
    def work(rank: Rank) -> str:
        transport = transport_for(rank, CPU)(
            rank.store, worker=rank.index, num_workers=2, pairs=[(0, 1)]
        )
        transport.close()  # only together: rank 0 holds the store
        return type(transport).__name__

    assert run_workers(work, 2) == ["SharedMemoryTransport", "SharedMemoryTransport"]


def test_gpus_do_not() -> None:
    rank = Rank(index=0, num_ranks=1, local_index=0, address="", store=HashStore())
    assert transport_for(rank, torch.device("cuda", 0)) is TorchTransport


def test_machines_do_not(monkeypatch) -> None:
    """Rank 1 has said that it runs elsewhere."""
    store = HashStore()
    store.set("place/1", "another machine")
    rank = Rank(index=0, num_ranks=2, local_index=0, address="", store=store)
    assert transport_for(rank, CPU) is TorchTransport


def test_slots_are_used_again() -> None:
    """50 messages of 5,000 bytes, never more than 2 under way: 2 slots of 8 KiB behind the ring."""

    def work(rank: Rank) -> int:
        transport = connect(rank)
        size_bytes = 0
        for index in range(0, 50, 2):
            if rank.index == 0:
                for value in (index, index + 1):
                    transport.send(1, "key", (torch.full((5_000,), value, dtype=torch.uint8),))
                file, _, _ = transport._senders[1]._lane.descriptors
                size_bytes = os.fstat(file).st_size
            else:
                for value in (index, index + 1):
                    (received,) = transport.receive(0, "key").wait()
                    assert received.tolist() == [value] * 5_000
            transport.barrier()
        transport.close()
        return size_bytes

    sent, _ = run_workers(work, 2, timeout_s=30)
    assert sent == 8 * 65_536 + 2 * 8_192


def test_a_full_ring_makes_the_sender_wait(monkeypatch) -> None:
    monkeypatch.setattr(shared_memory, "_RING_SLOTS", 4)

    def work(rank: Rank) -> list[float]:
        transport = connect(rank)
        taken: list[float] = []
        for index in range(30):
            if rank.index == 0:
                transport.send(1, "key", (torch.tensor(float(index)),))
            else:
                (received,) = transport.receive(0, "key").wait()
                taken.append(received.item())
        transport.close()
        return taken

    _, taken = run_workers(work, 2, timeout_s=30)
    assert len(taken) == 30
    assert all(later - earlier == 1 for earlier, later in pairwise(taken))


def test_a_message_that_never_comes_is_an_error() -> None:
    def work(rank: Rank) -> str:
        transport = connect(rank, timeout_s=0.3)
        text = ""
        if rank.index == 0:
            transport.send(1, "key", (torch.zeros(1),))
        else:
            transport.receive(0, "key").wait()
            with pytest.raises(RuntimeError) as error:
                transport.receive(0, "key").wait()
            text = str(error.value)
        return text

    assert run_workers(work, 2, timeout_s=30)[1] == "no message within 0.3 s"
