"""A model under torch.distributed.pipelining on one rank, for benchmarks to compare with."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    ScheduleDualPipeV,
    ScheduleZBVZeroBubble,
)
from torch.distributed.pipelining.schedules import PipelineScheduleSingle
from torch.nn import functional

from evener.modules.reference import build_layers
from evener.spec.model import ModelSpec

IN_A_V = (ScheduleZBVZeroBubble, ScheduleDualPipeV)
"""Schedules that place stages down and up the ranks; all others deal them out in turn."""


@dataclass(frozen=True)
class TorchJob:
    """One schedule of torch's and what it runs.

    kind: the class of the schedule. partition: layers of each stage. optimizer: makes one for some
    parameters. clip_norm: the gradients of all ranks together are scaled down to this norm.
    """

    kind: Any
    model: ModelSpec
    partition: Sequence[tuple[int, int]]
    num_ranks: int
    num_microbatches: int
    optimizer: Callable[[Sequence[Tensor]], torch.optim.Optimizer]
    clip_norm: float | None = None

    @property
    def num_stages(self) -> int:
        return len(self.partition)

    def rank_of(self, stage: int) -> int:
        lap, place = divmod(stage, self.num_ranks)
        return self.num_ranks - 1 - place if self.kind in IN_A_V and lap % 2 else place


class UnderTorch:
    """A model under one of torch's schedules. A step is forward, backward, update, loss for all."""

    def __init__(self, job: TorchJob, rank: int) -> None:
        layers = build_layers(job.model)
        mine = [stage for stage in range(job.num_stages) if job.rank_of(stage) == rank]
        self.modules = {
            stage: nn.Sequential(*(layers[index] for index in range(*job.partition[stage])))
            for stage in mine
        }
        device = torch.device("cpu")
        stages = [
            PipelineStage(module, stage, job.num_stages, device)
            for stage, module in self.modules.items()
        ]
        given = stages[0] if issubclass(job.kind, PipelineScheduleSingle) else stages
        self.schedule = job.kind(given, job.num_microbatches, loss_fn=_mean_loss)
        self.optimizer = job.optimizer(self.parameters())
        self.compute_ns = 0
        for stage in stages:
            for name in ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk"):
                setattr(stage, name, self._timed(getattr(stage, name)))
        self._update = self._timed(self._update)  # type: ignore[method-assign]
        self._is_first, self._is_last = 0 in mine, job.num_stages - 1 in mine
        self._last_rank = job.rank_of(job.num_stages - 1)
        self._clip_norm = job.clip_norm

    def step(self, batch: dict[str, Tensor]) -> None:
        inputs = (batch["inputs"],) if self._is_first else ()
        target = {"target": batch["targets"]} if self._is_last else {}
        self.compute_ns = 0
        losses: list[Tensor] = []
        self.schedule.step(*inputs, **target, losses=losses, return_outputs=False)
        if self._clip_norm is not None:
            self._clip(self._clip_norm)
        self._update()
        self.loss = torch.stack(losses).mean().detach() if losses else torch.zeros(())
        dist.broadcast(self.loss, src=self._last_rank)

    def _clip(self, norm: float) -> None:
        parameters = self.parameters()
        own = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        squares = own**2
        dist.all_reduce(squares)
        torch.nn.utils.clip_grads_with_norm_(parameters, norm, squares.sqrt())

    def _update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            start_ns = time.perf_counter_ns()
            try:
                return call(*arguments, **named)
            finally:
                self.compute_ns += time.perf_counter_ns() - start_ns

        return timed

    def parameters(self) -> list[Tensor]:
        return [p for _, module in sorted(self.modules.items()) for p in module.parameters()]


def _mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())
