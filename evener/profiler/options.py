"""What a measurement leaves open; everything has a default."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from evener.errors import UsageError
from evener.modules.backward_split import Way
from evener.modules.loss import Loss, TokenLoss
from evener.modules.optimizer import OptimizerFactory
from evener.modules.values import Microbatch

FEWEST_ROUNDS = 3

Progress = Callable[[int, int], None]
"""Told how much is done, and of how much: rounds over the layers, or pairs of workers."""


@dataclass(frozen=True)
class MeasureOptions:
    """How layers are measured.

    rounds: how often each layer is timed, after ``warm_up_rounds`` that do not count.
    budget_s: no further round begins after that many seconds, once there are 3.
    device, device_type: where, and its type in the cluster's description.
    make_batch: a microbatch of so many sequences, by default random tokens and targets for a
    described model.  input_name: its entry that the first layer is called with; other layers are
    given the entries that their ``forward`` names as parameters.
    loss, optimizer, split: those of the training run; by default token cross entropy, the job's
    optimizer, and what suits each layer.
    """

    rounds: int = 15
    warm_up_rounds: int = 2
    budget_s: float = 60.0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    device_type: str = "cpu"
    make_batch: Callable[[int], Microbatch] | None = None
    input_name: str = "inputs"
    loss: Loss = field(default_factory=TokenLoss)
    optimizer: OptimizerFactory | None = None
    split: Way | None = None
    progress: Progress = lambda done, total: None

    def __post_init__(self) -> None:
        wrong = []
        if self.rounds < FEWEST_ROUNDS:
            wrong.append(f"{self.rounds} rounds say nothing about noise; ask for {FEWEST_ROUNDS}")
        if self.warm_up_rounds < 0:
            wrong.append(f"{self.warm_up_rounds} rounds of warm-up; give 0 or more")
        if not self.budget_s > 0:
            wrong.append(f"a budget of {self.budget_s} s; give more than 0")
        if wrong:
            raise UsageError("layers cannot be measured this way", wrong)
