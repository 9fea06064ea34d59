"""The schedule as the CSV that ``torch.distributed.pipelining`` and torchtitan read.

One row per rank, one action per cell, no header.  ``format="compute_only"`` has F, B, I and W;
torch adds messages and gradient reduction itself.  ``format="compute_comms"`` has everything
written out, in our order of messages.  The file states the order of work and nothing else, so
what it leaves to the reader's own program (partition, optimizer, clipping) is not a reason to
refuse, but what torch would silently do otherwise is.

Format and limits: ``_Action``, ``_load_csv`` and ``_validate_schedule`` in
``torch/distributed/pipelining/schedules.py`` (2.13); the tests load what is written here with the
installed torch.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evener.export.exporter import Reason, require_supported
from evener.export.reasons import (
    data_parallel_stages,
    freezing,
    side_work,
    slices_and_graphs,
    spread_head,
    updates,
)
from evener.ir.action import Action, Kind
from evener.ir.passes import insert_messages
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.spec.model import ModelSpec

_KINDS = (Kind.F, Kind.B, Kind.I, Kind.W)


@dataclass(frozen=True)
class TorchCsv:
    """Exporter to torch's schedule CSV.

    messages: whether to write messages and gradient reduction out (``compute_comms``).
    """

    messages: bool = False

    @property
    def target(self) -> str:
        return "torch's schedule CSV"

    def unsupported(self, plan: Plan, model: ModelSpec | None = None) -> list[Reason]:
        """Everything that torch's pipelining cannot do or would do differently."""
        del model
        return [*_replicas(plan), *schedule_reasons(plan)]

    def write(self, plan: Plan, path: Path | str, model: ModelSpec | None = None) -> None:
        """Write one row per worker. Raises ExportError with everything that would be lost."""
        require_supported(self.target, plan, self.unsupported(plan, model))
        write_rows(plan.schedule, path, messages=self.messages)


def write_rows(schedule: Schedule, path: Path | str, *, messages: bool) -> None:
    """Write a schedule that torch can run, whatever plan it is part of."""
    rows = _with_messages(schedule) if messages else schedule.workers
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def schedule_reasons(plan: Plan) -> list[Reason]:
    """What torch's pipelining cannot do of the schedule of one replica."""
    schedule = plan.schedule
    return [
        *_tied_parameters(plan),
        *_idle_workers(schedule),
        *data_parallel_stages("torch", schedule),
        *_foreign_kinds(schedule),
        *slices_and_graphs("torch", schedule),
        *freezing("torch", plan),
        *side_work("torch", plan),
        *spread_head("torch", plan),
        *updates("torch", plan),
        *_order_of_losses(schedule),
    ]


def _with_messages(schedule: Schedule) -> Iterator[list[str]]:
    """Rows in torch's words.

    Parameters are unsharded for the whole step, as a plan holds them; torch reduces (and scales)
    the gradients of a stage where the row says so and nowhere else.
    """
    lowered = insert_messages(schedule)
    for stages, actions in zip(schedule.stages_of_worker, lowered.workers, strict=True):
        gradients = [i for i, action in enumerate(actions) if action.kind in (Kind.B, Kind.W)]
        last = {actions[i].stage: i for i in gradients}
        cells = [f"{stage}UNSHARD" for stage in stages]
        for position, action in enumerate(actions):
            cells.append(str(action))
            if last.get(action.stage) == position:
                cells.append(f"{action.stage}REDUCE_GRAD")
        yield [*cells, *(f"{stage}RESHARD" for stage in stages)]


def _replicas(plan: Plan) -> Iterator[Reason]:
    if plan.replicas > 1:
        yield Reason(
            f"{plan.replicas} replicas: the file is of one pipeline; export the plan with "
            "replicas = 1 and replicate it over a data-parallel mesh"
        )


def _tied_parameters(plan: Plan) -> Iterator[Reason]:
    for one, other in plan.tied:
        yield Reason(
            f"stages {one} and {other} share parameters: torch would leave each with its own part "
            "of the gradient; untie them or run the plan with `evener train`"
        )


def _idle_workers(schedule: Schedule) -> Iterator[Reason]:
    for worker, actions in enumerate(schedule.workers):
        if not actions:
            yield Reason(
                f"worker {worker} has no work: torch has no ranks without a stage; plan with "
                "fewer workers"
            )


def _foreign_kinds(schedule: Schedule) -> Iterator[Reason]:
    found: dict[Kind, list[Action]] = {}
    for _, action in schedule.actions():
        if action.kind not in _KINDS:
            found.setdefault(action.kind, []).append(action)
    for kind, actions in found.items():
        yield Reason(
            f"{len(actions)} {kind} actions, the first is {actions[0]}: the file knows "
            f"{', '.join(_KINDS)} only; plan without {kind}"
        )


def _order_of_losses(schedule: Schedule) -> Iterator[Reason]:
    last = schedule.num_stages - 1
    forwards = [
        action.microbatch
        for _, action in schedule.actions()
        if action.kind is Kind.F and action.stage == last
    ]
    expected = list(range(schedule.num_microbatches))
    if sorted(forwards, key=lambda m: -1 if m is None else m) == expected != forwards:
        place = next(i for i, m in enumerate(forwards) if m != i)
        yield Reason(
            f"the last stage runs microbatch {forwards[place]} where {place} is due: torch stores "
            "losses in the order of execution and would give each backward another one's loss; "
            "keep the last stage's forwards in ascending order"
        )
