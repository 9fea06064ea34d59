"""The loss as the executor needs it: a sum over what counts, and how much counts.

A step's loss is the sum over all microbatches divided by the number of all that counts in them, so
it does not depend on how the batch is cut.  Every rank knows the whole batch, hence the divisor
before the first backward: the loss is scaled, gradients never are.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.nn import functional

from evener.modules.values import Microbatch, Value


class Loss(Protocol):
    """What the last stage's output is worth."""

    def count(self, microbatch: Microbatch) -> int:
        """How many tokens (or samples) of the microbatch count; called on every rank."""
        ...

    def total(self, output: Value, microbatch: Microbatch) -> Tensor:
        """The loss summed over what counts, a scalar; called where the last stage is."""
        ...


@dataclass(frozen=True)
class TokenLoss:
    """Cross entropy of the logits [..., V] against ``microbatch[targets]`` [...].

    ignore_index: targets that do not count, such as padding.
    """

    targets: str = "targets"
    ignore_index: int = -100

    def count(self, microbatch: Microbatch) -> int:
        return int((microbatch[self.targets] != self.ignore_index).sum())

    def total(self, output: Value, microbatch: Microbatch) -> Tensor:
        return functional.cross_entropy(
            output.flatten(0, -2),
            microbatch[self.targets].flatten(),
            ignore_index=self.ignore_index,
            reduction="sum",
        )
