"""What every ``executor.transport.Transport`` must keep.

::

    @pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
    def test_my_transport(check):
        ...  # call check(transport) on each of NUM_WORKERS workers at once

The transports must be made for ``PAIRS`` and ``GROUPS``.  A broken promise raises AssertionError.
"""

from collections.abc import Callable
from itertools import permutations
from typing import TYPE_CHECKING

from evener.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from evener.executor.transport import Transport

NUM_WORKERS = 3
PAIRS = list(permutations(range(NUM_WORKERS), 2))
GROUPS = [(0, 1), (0, 1, 2), (1, 2)]


def check_order_of_a_pair(transport: "Transport") -> None:
    """The k-th send meets the k-th receive, in both directions at once, whatever waits when."""
    import torch

    number = 20
    for other in _others(transport):
        early = [transport.receive(other, index % 3) for index in range(number)]
        for index in range(number):
            tensor = torch.full((1 + index % 3,), 100 * transport.worker + index)
            transport.send(other, index % 3, (tensor,))
        for index in reversed(range(number)):
            (received,) = early[index].wait()
            assert received.tolist() == [100 * other + index] * (1 + index % 3)


def check_sending_ahead(transport: "Transport") -> None:
    """Sends return although nobody receives yet, also large ones, from all to all."""
    import torch

    for other in _others(transport):
        for index in range(3):
            tensor = torch.full((1_000_000,), float(index + transport.worker))
            transport.send(other, "large", (tensor,))
    transport.barrier()
    for other in _others(transport):
        for index in range(3):
            (received,) = transport.receive(other, "large").wait()
            assert received.shape == (1_000_000,)
            assert set(received[::999].tolist()) == {float(index + other)}


def check_all_sorts_of_tensors(transport: "Transport") -> None:
    """Any dtype, shape and layout arrives as it left, detached, in a message of any length."""
    for other in _others(transport):
        for index, message in enumerate(_messages()):
            transport.send(other, index, message)
            transport.send(other, index, message)
    for other in _others(transport):
        for index, message in enumerate(_messages()):
            handles = [transport.receive(other, index) for _ in range(2)]
            for handle in handles:
                _assert_same(handle.wait(), message)


def check_new_keys_among_known_ones(transport: "Transport") -> None:
    """Receives of keys that are not known yet may be posted in any mixture."""
    import torch

    keys = ["a", "b", "a", "c", "b", "b", "a", "d"]
    shapes = {"a": (2,), "b": (3, 1), "c": (0,), "d": ()}
    for other in _others(transport):
        handles = [transport.receive(other, key) for key in keys]
        for index, key in enumerate(keys):
            transport.send(other, key, (torch.full(shapes[key], index),))
        for index, (key, handle) in enumerate(zip(keys, handles, strict=True)):
            (received,) = handle.wait()
            assert received.equal(torch.full(shapes[key], index))


def check_changed_shapes_are_refused(transport: "Transport") -> None:
    """Other shapes under a known key raise at the sender."""
    import torch

    other = (transport.worker + 1) % NUM_WORKERS
    transport.send(other, "key", (torch.zeros(2),))
    for wrong in (
        (torch.zeros(3),),
        (torch.zeros(2, dtype=torch.int32),),
        (torch.zeros(2), torch.zeros(2)),
    ):
        text = _refusal(transport, other, wrong)
        assert f"channel {transport.worker}>{other} changed" in text
        assert "make the key depend on everything that the shapes follow from" in text
    transport.receive((transport.worker - 1) % NUM_WORKERS, "key").wait()


def check_received_tensors_are_ones_own(transport: "Transport") -> None:
    """Writing to what was received changes nothing at the sender, nor in the same message."""
    import torch

    sent = torch.ones(4)
    other = (transport.worker + 1) % NUM_WORKERS
    transport.send(other, "key", (sent, sent))
    first, second = transport.receive((transport.worker - 1) % NUM_WORKERS, "key").wait()
    transport.flush()
    first += 5
    transport.barrier()
    assert sent.tolist() == second.tolist() == [1, 1, 1, 1]


def check_reductions(transport: "Transport") -> None:
    """Sums and maxima over each group, several in flight, and over a worker alone."""
    import torch

    worker = transport.worker
    groups = [group for group in GROUPS if worker in group] + [(worker,)]
    started = []
    for group in groups:
        tensor = torch.tensor([worker + 1, -worker], dtype=torch.int64)
        values = torch.tensor([worker + 0.5], dtype=torch.float64)
        started.append((group, tensor, transport.all_reduce(group, tensor, maximum=True)))
        started.append((group, values, transport.all_reduce(group, values)))
    for group, tensor, handle in started:
        handle.wait()
        if tensor.dtype is torch.int64:
            assert tensor.tolist() == [max(group) + 1, -min(group)]
        else:
            assert tensor.tolist() == [sum(group) + 0.5 * len(group)]


def check_broadcasts(transport: "Transport") -> None:
    """From each worker to all, several in flight, and inside a group."""
    import torch

    tensors = [torch.full((2,), float(transport.worker)) for _ in range(NUM_WORKERS)]
    started = [transport.broadcast(tensor, source) for source, tensor in enumerate(tensors)]
    for source, (tensor, handle) in enumerate(zip(tensors, started, strict=True)):
        handle.wait()
        assert tensor.tolist() == [source, source]
    for group in GROUPS:
        if transport.worker in group:
            tensor = torch.tensor([float(transport.worker)])
            transport.broadcast(tensor, group[-1], group).wait()
            assert tensor.tolist() == [group[-1]]


def check_gathering(transport: "Transport") -> None:
    """Everybody's values, by worker, also between messages that are under way."""
    import torch

    other = (transport.worker + 1) % NUM_WORKERS
    transport.send(other, "key", (torch.tensor(transport.worker),))
    handle = transport.receive((transport.worker - 1) % NUM_WORKERS, "key")
    assert transport.num_workers == NUM_WORKERS
    assert transport.gather({"worker": transport.worker}) == [
        {"worker": worker} for worker in range(NUM_WORKERS)
    ]
    transport.barrier()
    assert int(handle.wait()[0]) == (transport.worker - 1) % NUM_WORKERS
    transport.flush()


TRANSPORT_CHECKS: tuple[Callable[["Transport"], None], ...] = (
    check_order_of_a_pair,
    check_sending_ahead,
    check_all_sorts_of_tensors,
    check_new_keys_among_known_ones,
    check_changed_shapes_are_refused,
    check_received_tensors_are_ones_own,
    check_reductions,
    check_broadcasts,
    check_gathering,
)


def _others(transport: "Transport") -> list[int]:
    return [worker for worker in range(NUM_WORKERS) if worker != transport.worker]


def _refusal(transport: "Transport", peer: int, tensors: "tuple[Tensor, ...]") -> str:
    try:
        transport.send(peer, "key", tensors)
    except UsageError as error:
        return str(error)
    raise AssertionError("other shapes under the same key were accepted")


def _messages() -> "list[tuple[Tensor, ...]]":
    import torch

    numbers = torch.arange(24, dtype=torch.float64)
    return [
        (),
        (torch.tensor(3.5),),
        (numbers.view(2, 3, 4),),
        (numbers.view(4, 6).t(), numbers.to(torch.int64), numbers.to(torch.bfloat16) / 3),
        (numbers[::2].requires_grad_(), torch.tensor([True, False]), torch.empty(0, 5)),
        (torch.empty(0),),
        (torch.complex(numbers, -numbers).conj(), torch.tensor(-1, dtype=torch.int8)),
        # Some of these are large enough to travel alone, some share a buffer.
        tuple(
            torch.full((size,), size % 999, dtype=torch.int16) for size in (1, 40_000, 3, 5, 50_000)
        ),
    ]


def _assert_same(received: "tuple[Tensor, ...]", sent: "tuple[Tensor, ...]") -> None:
    assert len(received) == len(sent)
    for one, other in zip(received, sent, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.equal(other.resolve_conj())
        assert not one.requires_grad
