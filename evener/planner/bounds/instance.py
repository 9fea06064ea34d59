"""What a lower bound is asked: the least times of a model's layers, and who may run them."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Times = NDArray[np.int64]

WHOLE = Fraction(1)


@dataclass(frozen=True)
class ChainTimes:
    """Times of one microbatch per layer, in nanoseconds, on the fastest worker that may run it.

    forward_ns: forward. input_ns: the least that a layer adds to the way back of a gradient; where
    the backward is never split, all of it. work_ns: the least that forward and backward of the
    layer cost a worker in all.
    weight_ns: the least of what may wait after the input gradient; None means the rest of work_ns.
    """

    forward_ns: Times
    input_ns: Times
    work_ns: Times
    weight_ns: Times | None = None

    @classmethod
    def of_parts(cls, forward_ns: ArrayLike, input_ns: ArrayLike, weight_ns: ArrayLike) -> Self:
        """Per layer, times of which the work is the sum."""
        parts_ns = np.array([forward_ns, input_ns, weight_ns], dtype=np.int64)
        return cls(parts_ns[0], parts_ns[1], parts_ns.sum(axis=0))

    @property
    def rest_ns(self) -> Times:
        """What may wait after the input gradient."""
        if self.weight_ns is not None:
            return self.weight_ns
        return self.work_ns - self.forward_ns - self.input_ns


@dataclass(frozen=True)
class Memory:
    """What limits how many microbatches are under way.

    held_bytes: per layer, held at least from the start of a forward to the end of its input
        gradient. room_bytes: of all workers together, besides what they always hold.
    """

    held_bytes: Times
    room_bytes: int


@dataclass(frozen=True)
class Instance:
    """All plans of a pipeline: contiguous stages of any size, on any worker, in any order.

    num_workers: workers that run something.
    stage_copies: the most workers that hold one layer; microbatches are shared out among them.
    first_part: the smallest part of a microbatch, in time, that goes from layer to layer at once.
    is_frozen: whether parameters are frozen; then ``work_ns`` is a mean over the microbatches.
    message_ns: the least time of a message between two workers.
    worker_work_ns: int64[worker, layer], all that a layer costs every single worker, recomputation
        included; None if that is ``work_ns`` for all.
    memory: None if it limits nothing.
    slice_way_ns: per layer, the least forward and input gradient of the longest slice, where
        microbatches may be cut into a limited number of them; else None.
    """

    chain: ChainTimes
    num_workers: int
    num_microbatches: int
    stage_copies: int = 1
    first_part: Fraction = WHOLE
    is_frozen: bool = False
    message_ns: int = 0
    worker_work_ns: Times | None = None
    memory: Memory | None = None
    slice_way_ns: Times | None = None

    @property
    def num_layers(self) -> int:
        return len(self.chain.forward_ns)

    @property
    def most_workers(self) -> int:
        """More cannot have a layer."""
        return self.num_layers * self.stage_copies

    @property
    def total_work_ns(self) -> int:
        """Of all layers and microbatches."""
        return int(self.chain.work_ns.sum()) * self.num_microbatches

    @property
    def hops(self) -> int:
        """The least number of messages of a way through all layers: it meets every worker."""
        return self.num_workers - 1 if self.stage_copies == 1 else 0

    def front_ns(self, times_ns: Times) -> Times:
        """Per layer, the least time of a way through all layers in front, given one of each."""
        front_ns = np.cumsum(times_ns) - times_ns
        return front_ns * self.first_part.numerator // self.first_part.denominator

    def arrival_ns(self, times_ns: Times) -> Times:
        """Per worker, by its first layer, the least time of a way from layer 0 to it.

        No more than ``stage_copies`` workers have the same first layer, and the way to that of the
        next one has met all workers before.
        """
        worker = np.arange(self.num_workers)
        own_messages_ns = worker * self.message_ns if self.stage_copies == 1 else 0
        return self.front_ns(times_ns)[worker // self.stage_copies] + own_messages_ns


def quotient_up(numerator: int, denominator: int) -> int:
    """Rounded up, exactly."""
    return -(-numerator // denominator)
