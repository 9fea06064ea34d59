"""What actions do to tensors: the one part of a run that knows the model."""

from collections.abc import Hashable
from typing import Protocol

from torch import Tensor

from evener.executor.transport import Handle, Transport
from evener.ir.action import Action


class Engine(Protocol):
    """The tensors of one worker. The loop calls it from one thread, in the order of the schedule.

    Filling in the batch before a step and reading the losses after it is the business of whoever
    drives the steps; the loop knows nothing of it.
    """

    def signature(self, microbatch: int) -> Hashable:
        """What the shapes of a microbatch's tensors follow from, such as its inputs' shapes.

        All workers return the same for the same microbatch of a step. Messages of a stage whose
        signature was seen before travel without a header.
        """
        ...

    def run(self, action: Action) -> None:
        """Do a compute action: F, B, I, W, R, STEP, X, FREE."""
        ...

    def payload(self, action: Action) -> tuple[Tensor, ...]:
        """The tensors that a SEND takes to its peer; nobody writes to them afterwards."""
        ...

    def accept(self, action: Action, tensors: tuple[Tensor, ...]) -> None:
        """Take over what a RECV has brought; called right before the action that needs it."""
        ...

    def collective(self, action: Action, transport: Transport, members: tuple[int, ...]) -> Handle:
        """Start a REDUCE, a NORM or a SHARE among ``members`` (ascending, this worker included).

        All that the action needs has ended. The loop calls ``wait`` of the handle before the first
        action that needs the result, so what remains to be done with it is done there.
        """
        ...

    def copy(self, action: Action) -> Handle:
        """Start an OFFLOAD or a RELOAD and return at once.

        The loop calls ``wait`` of the handle right before the first action that needs the result.
        """
        ...
