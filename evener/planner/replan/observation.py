"""What the timelines of a run say of its workers and links."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evener.cost.table import CostTable
from evener.ir.action import Kind
from evener.ir.dependencies import resolve
from evener.ir.rules import RULES, Stream
from evener.ir.schedule import Schedule
from evener.ir.timeline import Timeline
from evener.planner.replan.world import Way

Int = NDArray[np.int64]

_WAYS: dict[Kind, Way] = {
    Kind.F: "forward",
    Kind.R: "backward",
    Kind.B: "backward",
    Kind.I: "backward",
    Kind.W: "backward",
}
_WAITED = 0.25
"""A receive that took a larger part of its message's time was waited for, not only unpacked."""

Part = tuple[int, int, Way]
"""(worker, stage, forward or backward)."""


@dataclass(frozen=True)
class Observation:
    """One step, or several of one plan taken together.

    step_ns: of the whole step. work_ns: [part], all actions of a part together.
    latency_ns: [link], of its quickest message, its size aside. is_exact: [link], whether somebody
    waited for that message; otherwise it may have lain there, and the latency is less.
    """

    step_ns: int
    work_ns: Int
    latency_ns: Int
    is_exact: NDArray[np.bool_]

    @classmethod
    def together(cls, steps: "Sequence[Observation]") -> "Observation":
        """Medians of steps, so that one late step decides nothing.

        Of a link that was waited for in half of them, the median of these; else the least.
        """
        latency_ns = np.array([step.latency_ns for step in steps])
        exact = np.array([step.is_exact for step in steps])
        is_exact = 2 * exact.sum(axis=0) >= len(steps)
        for link in range(latency_ns.shape[1]):
            of_link = latency_ns[:, link]
            latency_ns[0, link] = (
                np.median(of_link[exact[:, link]]) if is_exact[link] else of_link.min()
            )
        return cls(
            step_ns=int(np.median([step.step_ns for step in steps])),
            work_ns=np.median([step.work_ns for step in steps], axis=0).astype(np.int64),
            latency_ns=latency_ns[0],
            is_exact=is_exact,
        )


class Observer:
    """Reads the timelines of one lowered schedule, measured as ``executor.trace`` does it.

    parts: what ``work_ns`` is of. links: (source, target) that ``latency_ns`` is of.
    expected_ns: [part], what ``work_ns`` should be by the costs.
    """

    def __init__(self, schedule: Schedule, costs: CostTable) -> None:
        actions = list(schedule.actions())
        self.parts: list[Part] = sorted(
            {(w, a.stage, _WAYS[a.kind]) for w, a in actions if a.kind in _WAYS}
        )
        part_of = {part: number for number, part in enumerate(self.parts)}
        worked = [(i, w, a) for i, (w, a) in enumerate(actions) if a.kind in _WAYS]
        self._worked = np.array([index for index, _, _ in worked], dtype=np.int64)
        self._part = np.array(
            [part_of[worker, a.stage, _WAYS[a.kind]] for _, worker, a in worked], dtype=np.int64
        )
        self.expected_ns = self._per_part([costs.action_ns(worker, a) for _, worker, a in worked])
        self.mean_action_ns = int(self.expected_ns.sum()) // max(1, len(worked))

        match = resolve(schedule).match
        sent = [
            (index, match[index], worker, actions[match[index]][0])
            for index, (worker, action) in enumerate(actions)
            if action.kind in (Kind.SEND_F, Kind.SEND_B)
        ]
        self.links = sorted({(source, target) for _, _, source, target in sent})
        self._sends, self._receives, *_ = np.array(sent, dtype=np.int64).reshape(-1, 4).T
        self._link = np.array([self.links.index((s, t)) for _, _, s, t in sent], dtype=np.int64)
        self._transfer_ns = np.array(
            [costs.message_ns(source, target, actions[i][1]) for i, _, source, target in sent],
            dtype=np.int64,
        )
        # What ends a worker's wait: its own compute actions, and what it takes.
        receives = {receive for _, receive, _, _ in sent}
        events = [
            (index, worker)
            for index, (worker, action) in enumerate(actions)
            if index in receives or RULES[action.kind].stream is Stream.COMPUTE
        ]
        self._events, self._event_worker = np.array(events, dtype=np.int64).reshape(-1, 2).T

    def read(self, timeline: Timeline) -> Observation:
        """What a timeline of the schedule says."""
        start_ns, end_ns = _numbers(timeline.start_ns), _numbers(timeline.end_ns)
        span_ns = end_ns[self._receives] - start_ns[self._sends]
        waited_ns = self._waited_ns(end_ns)[self._receives]
        is_exact = waited_ns > _WAITED * span_ns
        own_ns = np.maximum(0, span_ns - self._transfer_ns)
        never = np.iinfo(np.int64).max
        bound_ns, exact_ns = (np.full(len(self.links), never) for _ in range(2))
        np.minimum.at(bound_ns, self._link, own_ns)
        np.minimum.at(exact_ns, self._link[is_exact], own_ns[is_exact])
        return Observation(
            step_ns=timeline.step_ns,
            work_ns=self._per_part((end_ns - start_ns)[self._worked]),
            latency_ns=np.where(exact_ns < never, exact_ns, bound_ns),
            is_exact=exact_ns < never,
        )

    def _per_part(self, times_ns: Int | Sequence[int]) -> Int:
        sums = np.bincount(self._part, weights=times_ns, minlength=len(self.parts))
        return sums.astype(np.int64)

    def _waited_ns(self, end_ns: Int) -> Int:
        """Per action, how long before its end its worker ended something else."""
        ends_ns = end_ns[self._events]
        order = np.lexsort((ends_ns, self._event_worker))
        sorted_ns, workers = ends_ns[order], self._event_worker[order]
        before_ns = np.concatenate(([0], sorted_ns[:-1]))
        before_ns[np.concatenate(([True], workers[1:] != workers[:-1]))[: len(workers)]] = 0
        waited_ns = np.zeros_like(end_ns)
        waited_ns[self._events[order]] = sorted_ns - before_ns
        return waited_ns


def _numbers(times_ns: "array[int]") -> Int:
    return np.frombuffer(times_ns, dtype=np.int64)
