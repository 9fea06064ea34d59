"""PipeFisher: the work of K-FAC in the bubbles of a pipeline.

Osawa, Li and Hoefler, "PipeFisher: Efficient Training of Large Language Models Using Pipelining and
Fisher Information Matrices", MLSys 2023 (arXiv 2211.14133), sections 3.1 and 3.2.

Of every layer there are, per microbatch, the covariances of its inputs (covA, once the microbatch
has gone forward) and of its output gradients (covB, once it has gone backward); per step the sums
of either over the workers that hold the layer (syncA, syncB), and the inverses (invA, invB).  The
covariances of one step are worked off in the bubbles of that step and of as many following ones as
it takes; with the last inverse the cycle is complete and the next step begins another.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evener.cost.table import CostTable
from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.planner.side_work import BACKWARD, Filling, SideUnit, fill_bubbles

PRIORITIES = ("covA", "covB", "syncA", "syncB", "invA", "invB")
"""The kinds of work, the preferred one first."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class KfacCosts:
    """Nanoseconds of one layer's work: covariances of one microbatch, all else of the whole step.

    sync_a_ns, sync_b_ns: asked for only where several workers hold the layer.
    """

    cov_a_ns: int
    cov_b_ns: int
    inv_a_ns: int
    inv_b_ns: int
    sync_a_ns: int = 0
    sync_b_ns: int = 0

    def of_kind(self, kind: str) -> int:
        """kind: one of ``PRIORITIES``."""
        return int(getattr(self, f"{kind[:-1]}_{kind[-1].lower()}_ns"))


def kfac_name(kind: str, layer: int) -> str:
    """The name of one kind of work on a layer of the model: ``covA_b`` is that of layer 1."""
    letters = ""
    number = layer + 1
    while number:
        number, rest = divmod(number - 1, len(_LETTERS))
        letters = _LETTERS[rest] + letters
    return f"{kind}_{letters}"


def pipe_fisher(
    schedule: Schedule,
    costs: CostTable,
    layers: Mapping[int, KfacCosts],
    *,
    partition: Sequence[tuple[int, int]],
    lowered: Schedule | None = None,
) -> Filling:
    """Place the work of one cycle; see ``fill_bubbles`` for ``schedule`` and ``lowered``.

    layers: those that have factors, by their index in the model.
    partition: per stage, its layers as [first, one past the last).

    Raises PlanInfeasible if a unit fits into no bubble of its worker. Source: section 3.2.
    """
    groups = (schedule if lowered is None else lowered).workers_of_stage
    units = [
        unit
        for kind in PRIORITIES
        for stage, (first, end) in enumerate(partition)
        for layer in range(first, end)
        if layer in layers and (not kind.startswith("sync") or len(groups[stage]) > 1)
        for unit in _units(
            schedule,
            kind,
            layers[layer].of_kind(kind),
            stage=stage,
            layer=layer,
            is_summed=len(groups[stage]) > 1,
        )
    ]
    return fill_bubbles(schedule, costs, units, lowered=lowered)


def _units(
    schedule: Schedule, kind: str, duration_ns: int, *, stage: int, layer: int, is_summed: bool
) -> Iterator[SideUnit]:
    work, side = kind[:-1], kind[-1]
    name = kfac_name(kind, layer)
    before = "sync" if work == "inv" and is_summed else "cov"
    for worker in schedule.workers_of_stage[stage]:
        if work != "cov":
            action = Action(stage, Kind.X, name=name)
            needs = (kfac_name(before + side, layer),)
            yield SideUnit(worker, action, duration_ns, needs=needs)
            continue
        actions = set(schedule.workers[worker])
        for action in schedule.workers[worker]:
            if action.stage == stage and action.kind is Kind.F:
                # Of two forwards the second is the one that a backward belongs to.
                forward = Kind.R if action._replace(kind=Kind.R) in actions else Kind.F
                after = BACKWARD if side == "B" else frozenset({forward})
                unit = action._replace(kind=Kind.X, name=name)
                yield SideUnit(worker, unit, duration_ns, after)
