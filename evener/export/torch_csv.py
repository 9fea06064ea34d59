"""The schedule as the CSV that ``torch.distributed.pipelining`` and torchtitan read.

One row per rank, one action per cell, no header; F, B, I and W only (``format="compute_only"``:
torch itself adds messages and gradient reduction). The file states the order of work and nothing
else, so what it leaves to the reader's own program (partition, optimizer, clipping) is not a
reason to refuse, but what torch would silently do otherwise is.

Format and limits: ``_Action``, ``_load_csv`` and ``_validate_schedule`` in
``torch/distributed/pipelining/schedules.py`` (2.13); the tests load what is written here with the
installed torch.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

from evener.export.exporter import Reason, require_supported
from evener.ir.action import Action, Kind
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule

_KINDS = (Kind.F, Kind.B, Kind.I, Kind.W)


class TorchCsv:
    """Exporter to torch's compute-only schedule CSV."""

    target = "torch's schedule CSV"

    def unsupported(self, plan: Plan) -> list[Reason]:
        """Everything that torch's pipelining cannot do or would do differently."""
        schedule = plan.schedule
        return [
            *_replicas(plan),
            *_tied_parameters(plan),
            *_data_parallel_stages(schedule),
            *_foreign_kinds(schedule),
            *_slices_and_graphs(schedule),
            *_order_of_losses(schedule),
        ]

    def write(self, plan: Plan, path: Path | str) -> None:
        """Write one row per worker. Raises ExportError with everything that would be lost."""
        require_supported(self.target, plan, self.unsupported(plan))
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(plan.schedule.workers)


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


def _data_parallel_stages(schedule: Schedule) -> Iterator[Reason]:
    for stage, workers in enumerate(schedule.workers_of_stage):
        if len(workers) > 1:
            yield Reason(
                f"stage {stage} is on workers {', '.join(map(str, workers))}: torch holds every "
                "stage on one rank; plan it with one worker per stage"
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


def _slices_and_graphs(schedule: Schedule) -> Iterator[Reason]:
    if schedule.num_slices > 1:
        yield Reason(
            f"{schedule.num_slices} token slices per microbatch: the file has no index for them; "
            "plan with one slice"
        )
    chain = {(stage, stage + 1) for stage in range(schedule.num_stages - 1)}
    for producer, consumer in sorted(set(schedule.stage_edges) ^ chain):
        yield Reason(
            f"the stages are not a chain, see {producer} to {consumer}: torch passes tensors "
            "from each stage to the next only"
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
