"""What benchmarks train on: the demo's model and batches of the demo's size, of real text.

The text is the source files of Python's standard library; tokens are pairs of bytes.
"""

import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

import evener
from evener.executor.text_data import read_text
from evener.modules.optimizer import optimizer_factory, set_learning_rate
from evener.spec import load_toml
from evener.spec.job import AdamSpec

RECIPES = Path(__file__).parent.parent / "recipes"


class Demo:
    """Model, job and text. seed: of the model's start and of the batches."""

    def __init__(self, seed: int = 0) -> None:
        self.model = load_toml(RECIPES / "models/demo.toml", evener.ModelSpec)
        job = load_toml(RECIPES / "jobs/demo.toml", evener.JobSpec)
        self.job = job.model_copy(update={"seed": seed})
        vocabulary_size = self.model.vocabulary_size
        assert vocabulary_size is not None
        stdlib = Path(sysconfig.get_path("stdlib"))
        self.text = read_text(stdlib, vocabulary_size=vocabulary_size)

    def batch(self, step: int) -> dict[str, Any]:
        """Of one step."""
        return self.text.batch(
            num_sequences=self.job.num_sequences,
            sequence_length=self.job.sequence_length,
            seed=self.job.seed,
            step=step,
        )


def warmed_up(learning_rate: float, updates: int) -> Callable[[list[nn.Parameter]], Optimizer]:
    """AdamW whose learning rate grows linearly over the first updates, and then stays.

    The optimizer counts its own updates, as a run of an asynchronous schedule makes several.
    """
    make = optimizer_factory(AdamSpec(learning_rate=learning_rate))

    def make_warmed_up(parameters: list[nn.Parameter]) -> Optimizer:
        optimizer, made = make(parameters), 0

        def before_step(*_: object) -> None:
            nonlocal made
            made += 1
            set_learning_rate(optimizer, learning_rate * min(1.0, made / updates))

        optimizer.register_step_pre_hook(before_step)
        return optimizer

    return make_warmed_up
