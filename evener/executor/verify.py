"""Parity: does training under a plan give the numbers of a single process?

A tiny model with everything that has gone wrong elsewhere (tied embeddings, dropout, clipping,
ignored targets, microbatches of unequal size and length) is trained for some steps, once by a plain
PyTorch loop in this process and once under the schedule in real processes.  Losses, gradients
before clipping, gradient norms and the parameters after the last step are compared in float64.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, pairwise
from math import inf, isnan
from typing import Any

import torch
from torch import Tensor

from evener.executor.launch import Rank, run_workers
from evener.executor.oracles import Trace, copies, in_parts, train_alone
from evener.executor.torch_transport import TorchTransport
from evener.executor.train import Trainer, TrainOptions, trainer_connections
from evener.ir.freezing import Freezing
from evener.ir.passes import replicate
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.ir.text import format_schedule
from evener.ir.versions import versions_read
from evener.modules.backward_split import Way
from evener.spec.job import AdamSpec, JobSpec, OptimizerSpec
from evener.spec.model import ModelSpec

STEPS = 3
TOLERANCE = 1e-12
"""The largest difference that counts as none, in float64."""

_MICROBATCH_SIZE = 2
_SEQUENCE_LENGTH = 5
_VOCABULARY_SIZE = 11
_MIN_LAYERS = 6


@dataclass(frozen=True)
class Case:
    """One schedule and how the tiny model is trained under it.

    schedule: compute actions only. tied: whether the embedding and the head share their matrix.
    ragged: whether microbatches differ in size and sequence length. freezing: of every step.
    packed: whether sequences hold several documents. window: how many tokens attention sees, None
    means all. Where the schedule has slices, they are of unequal length. spread_head: see
    ``JobSpec``; the schedule is that of one pipeline.
    """

    schedule: Schedule
    tied: bool = True
    dropout: float = 0.1
    clip_norm: float | None = 0.1
    ragged: bool = True
    optimizer: OptimizerSpec = field(default_factory=AdamSpec)
    split: Way | None = None
    freezing: Freezing | None = None
    packed: bool = False
    window: int | None = None
    spread_head: bool = False
    name: str = ""

    @property
    def slice_tokens(self) -> tuple[int, ...] | None:
        num_slices = self.schedule.num_slices
        if num_slices == 1:
            return None
        return tuple((2, 1, 3)[index % 3] for index in range(num_slices))

    @property
    def sequence_length(self) -> int:
        return sum(self.slice_tokens or (_SEQUENCE_LENGTH,))

    def __str__(self) -> str:
        schedule = self.schedule
        text = (
            f"{self.name or schedule.name}, {schedule.num_stages} stages, "
            f"{schedule.num_microbatches} microbatches, {schedule.num_workers} workers"
        )
        features = {
            "tied": self.tied,
            "dropout": self.dropout > 0,
            "clipped": self.clip_norm is not None,
            "ragged": self.ragged,
            "frozen": self.freezing is not None,
            f"slices of {self.slice_tokens}": self.slice_tokens is not None,
            "packed": self.packed,
            f"window of {self.window}": self.window is not None,
            "spread head": self.spread_head,
        }
        return ", ".join([text, *(name for name, is_on in features.items() if is_on)])


@dataclass(frozen=True)
class Parity:
    """The largest absolute differences from the single process, over all steps and workers."""

    case: str
    loss: float
    gradient: float
    grad_norm: float
    parameter: float

    @property
    def worst(self) -> float:
        return max(self.loss, self.gradient, self.grad_norm, self.parameter)

    @property
    def holds(self) -> bool:
        return self.worst <= TOLERANCE


def verify(schedule: Schedule | Plan, **options: Any) -> Parity:
    """Train under one schedule, or that of a plan, and compare.

    options: the other fields of ``Case``; a plan sets clip_norm, optimizer, tied and freezing from
        its own.
    """
    if isinstance(schedule, Plan):
        job = schedule.job
        plan_options = {
            "clip_norm": job.clip_norm,
            "optimizer": job.optimizer,
            "tied": bool(schedule.tied),
            "freezing": schedule.freezing,
            "spread_head": job.spread_head,
            "name": f"{schedule.model} under {schedule.schedule.name}",
        }
        compute_only = replicate(schedule.schedule, schedule.replicas)
        return next(verify_cases([Case(compute_only, **{**plan_options, **options})]))
    return next(verify_cases([Case(schedule, **options)]))


def verify_cases(cases: Sequence[Case], *, timeout_s: float = 600.0) -> Iterator[Parity]:
    """Train and compare case after case, those of one number of workers in the same processes.

    timeout_s: for all cases of one number of workers.
    """
    oracles: dict[Hashable, Trace] = {}
    for (num_workers, _), group in groupby(sorted(cases, key=_processes), key=_processes):
        worlds = [_World.of(case) for case in group]
        for world in worlds:
            if world.oracle not in oracles:
                oracles[world.oracle] = train_alone(world.model, world.plan, world.batches)
        expected = [oracles[world.oracle] for world in worlds]
        run = _Run(worlds, expected)
        found = run_workers(run.compare, num_workers, timeout_s=timeout_s)
        for index, world in enumerate(worlds):
            yield _worst_of(str(world.case), [rank[index] for rank in found])


def _processes(case: Case) -> tuple[int, int]:
    """Equal for cases that can share them: between two stages they send the same shapes."""
    return case.schedule.num_workers, case.schedule.num_stages if case.spread_head else 0


@dataclass(frozen=True)
class _World:
    """A case with its model, plan and data."""

    case: Case
    model: ModelSpec
    plan: Plan
    batches: list[list[dict[str, Tensor]]]

    @property
    def oracle(self) -> Hashable:
        """Equal for cases whose single process does the same."""
        plan, case = self.plan, self.case
        frozen = None if plan.freezing is None else (plan.freezing, plan.partition)
        job = plan.job.model_dump_json()
        versions = format_schedule(case.schedule) if case.schedule.updates.number > 1 else None
        return self.model.fingerprint(), job, case.ragged, case.packed, frozen, versions

    @classmethod
    def of(cls, case: Case) -> "_World":
        num_stages = case.schedule.num_stages
        model = tiny_model(
            max(_MIN_LAYERS, num_stages),
            tied=case.tied,
            dropout=case.dropout,
            window=case.window,
        )
        plan = _plan(case, model)
        # Twice through a schedule of several updates, as versions are counted from flush to flush.
        num_updates = case.schedule.updates.number
        steps = STEPS if num_updates == 1 else 2 * num_updates
        return cls(case, model, plan, [_batch(case, step) for step in range(steps)])


def tiny_model(
    num_layers: int, *, tied: bool, dropout: float, window: int | None = None
) -> ModelSpec:
    """Embedding, then attention and two kinds of feed-forward in turn, and a head."""
    inner = ["attention", "mlp", "plain"]
    chosen = [inner[index % 3] for index in range(num_layers - 2)]
    layers: dict[str, dict[str, Any]] = {
        "embedding": {"kind": "embedding", "dropout": dropout},
        "attention": {
            "kind": "attention",
            "num_heads": 2,
            "num_kv_heads": 1,
            "head_dim": 4,
            "qkv_bias": True,
            "window": window,
            "dropout": dropout,
        },
        "mlp": {"kind": "mlp", "intermediate_size": 12, "dropout": dropout},
        "plain": {
            "kind": "mlp",
            "intermediate_size": 10,
            "gated": False,
            "bias": True,
            "activation": "gelu",
            "dropout": dropout,
        },
        "head": {"kind": "head"},
    }
    pattern = ["embedding", *chosen, "head"]
    return ModelSpec.model_validate(
        {
            "name": "tiny",
            "hidden_size": 8,
            "vocabulary_size": _VOCABULARY_SIZE,
            "tied_embeddings": tied,
            "pattern": " ".join(pattern),
            "layer": {name: spec for name, spec in layers.items() if name in pattern},
        }
    )


def _plan(case: Case, model: ModelSpec) -> Plan:
    schedule = case.schedule
    num_layers = len(model.layers)
    cuts = [stage * num_layers // schedule.num_stages for stage in range(schedule.num_stages + 1)]
    job = JobSpec.model_validate(
        {
            "global_batch_sequences": schedule.update_size * _MICROBATCH_SIZE,
            "sequence_length": case.sequence_length,
            "dtypes": dict.fromkeys(
                ("parameters", "gradients", "optimizer", "activations"), "float64"
            ),
            "optimizer": case.optimizer.model_dump(),
            "clip_norm": case.clip_norm,
            "spread_head": case.spread_head,
            "asynchronous": schedule.updates.number > 1,
            "seed": 7,
            # From the first step on, and as the case says.
            "freeze": None
            if case.freezing is None
            else {"max_share": 1.0, "monitor_steps": 0, "ramp_steps": 0},
        }
    )
    is_tied = case.tied and schedule.num_stages > 1
    return Plan(
        model=model.name,
        model_fingerprint=model.fingerprint(),
        layer_names=tuple(layer.name for layer in model.layers),
        partition=tuple(pairwise(cuts)),
        devices=tuple((f"cpu:{worker}",) for worker in range(schedule.num_workers)),
        microbatch_size=_MICROBATCH_SIZE,
        sequence_length=case.sequence_length,
        slice_tokens=case.slice_tokens,
        job=job,
        tied=((0, schedule.num_stages - 1),) if is_tied else (),
        schedule=schedule,
        freezing=case.freezing,
    )


def _batch(case: Case, step: int) -> list[dict[str, Tensor]]:
    """The microbatches of one step; in each, some targets are ignored."""
    generator = torch.Generator().manual_seed(1000 + step)
    microbatches = []
    for index in range(case.schedule.update_size):
        extra = index % 3 if case.ragged else 0
        shape = (_MICROBATCH_SIZE + extra, case.sequence_length + extra)
        inputs, targets = torch.randint(_VOCABULARY_SIZE, (2, *shape), generator=generator)
        targets[0, : 1 + index % 4] = -100
        microbatches.append({"inputs": inputs, "targets": targets})
        if case.packed:
            begins = torch.rand(shape, generator=generator) < 0.3
            microbatches[-1]["documents"] = begins.cumsum(1)
    return microbatches


@dataclass(frozen=True)
class _Run:
    """What every worker process does: all worlds one after another over one transport."""

    worlds: list[_World]
    expected: list[Trace]

    def compare(self, rank: Rank) -> list[Parity]:
        found = [trainer_connections(world.plan) for world in self.worlds]
        transport = TorchTransport(
            rank.store,
            worker=rank.index,
            num_workers=rank.num_ranks,
            pairs=sorted({pair for pairs, _ in found for pair in pairs}),
            groups=sorted({group for _, groups in found for group in groups}),
        )
        parities = []
        for world, expected in zip(self.worlds, self.expected, strict=True):
            trainer = Trainer(
                world.plan, world.model, transport, TrainOptions(split=world.case.split)
            )
            held = transport.gather(sorted(trainer.model.parameters))
            alone = in_parts(expected, {name for names in held for name in names})
            if {name for names in held for name in names} != set(alone.parameters):
                raise AssertionError(f"{world.case}: the workers do not hold the whole model")
            parities.append(_difference(str(world.case), _train(trainer, world), alone))
        transport.close()
        return parities


def _train(trainer: Trainer, world: _World) -> Trace:
    """The same training under the plan, on this worker."""
    trace = Trace()
    taken: list[dict[str, Tensor]] = []
    trainer.engine.on_gradients = lambda parameters: taken.append(copies(parameters))
    size = trainer.schedule.updates.number
    for first in range(0, len(world.batches), size):
        results = trainer.steps(world.batches[first : first + size])
        trace.losses += [result.loss for result in results]
        trace.grad_norms += [result.grad_norm for result in results]
        trace.gradients += _of_updates(taken, len(results))
        taken.clear()
        _require_versions(trainer)
    trace.parameters = {name: each.detach() for name, each in trainer.model.parameters.items()}
    return trace


def _of_updates(taken: list[dict[str, Tensor]], number: int) -> list[dict[str, Tensor]]:
    """What was taken, joined by update: of each, as many times."""
    size = len(taken) // number
    updates = [taken[index * size : (index + 1) * size] for index in range(number)]
    return [{name: each for part in update for name, each in part.items()} for update in updates]


def _require_versions(trainer: Trainer) -> None:
    """Raise AssertionError unless this worker has read the weights that the checker proves."""
    if trainer.versions is None:
        return
    worker, promised = trainer.transport.worker, versions_read(trainer.schedule)
    own = {a: promised[a] for a in trainer.schedule.workers[worker] if a in promised}
    if trainer.versions.read != own:
        raise AssertionError(f"worker {worker} read versions {trainer.versions.read}, not {own}")


def _difference(case: str, ours: Trace, expected: Trace) -> Parity:
    """How far one worker is from the oracle, in the parameters that it holds."""
    held = list(ours.parameters)
    return Parity(
        case,
        loss=_farthest(ours.losses, expected.losses),
        gradient=max(map(partial(_farthest_tensor, held), ours.gradients, expected.gradients)),
        grad_norm=_farthest(ours.grad_norms, expected.grad_norms),
        parameter=_farthest_tensor(held, ours.parameters, expected.parameters),
    )


def _farthest(ours: Sequence[float | None], expected: Sequence[float | None]) -> float:
    pairs = zip(ours, expected, strict=True)
    return max(_distance(a, b) for a, b in pairs)


def _distance(ours: float | None, expected: float | None) -> float:
    if ours is None or expected is None:
        return 0.0 if ours is expected else inf
    difference = abs(ours - expected)
    return inf if isnan(difference) else difference


def _farthest_tensor(
    names: Sequence[str], ours: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> float:
    farthest = 0.0
    for name in names:
        our, their = ours.get(name), expected.get(name)
        if our is None or their is None or our.shape != their.shape:
            farthest = max(farthest, 0.0 if our is None and their is None else inf)
        else:
            farthest = max(farthest, _distance(float((our - their).abs().max()), 0.0))
    return farthest


def _worst_of(case: str, parities: Sequence[Parity]) -> Parity:
    return Parity(
        case,
        loss=max(each.loss for each in parities),
        gradient=max(each.gradient for each in parities),
        grad_norm=max(each.grad_norm for each in parities),
        parameter=max(each.parameter for each in parities),
    )
