"""When the actions of written orders run, and how much has to run after each of them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product

import numpy as np

from evener.planner.joint.orders import Orders
from evener.planner.joint.world import BACKWARD, FORWARD, WEIGHT, WHOLE, World

Action = tuple[int, int, int]
"""Stage, kind and microbatch."""


@dataclass(frozen=True)
class Timetable:
    """Lists of a world with their times.

    A message has all of its link; where messages queue, the true times are later.
    """

    world: World
    orders: Orders

    @cached_property
    def lists(self) -> list[list[Action]]:
        """Per worker, what it does."""
        done: dict[int, int] = defaultdict(int)
        lists: list[list[Action]] = []
        for row, length in zip(self.orders.action, self.orders.length, strict=True):
            lists.append([])
            for code in row[:length].tolist():
                lists[-1].append((code // 3, code % 3, done[code]))
                done[code] += 1
        return lists

    def with_lists(self, lists: Sequence[Sequence[Action]]) -> Orders:
        """The orders with the same actions in other places."""
        action = self.orders.action.copy()
        for row, actions in zip(action, lists, strict=True):
            row[: len(actions)] = [stage * 3 + kind for stage, kind, _ in actions]
        return self.orders._replace(action=action)

    @cached_property
    def time_ns(self) -> dict[tuple[int, int], int]:
        """How long an action takes, by stage and kind."""
        cut, overhead_ns = self.orders.cut, int(self.world.overhead_ns[0])
        times = {}
        for stage, kind in product(range(len(self.orders.worker)), (FORWARD, BACKWARD, WEIGHT)):
            row = WHOLE if kind == BACKWARD and self.orders.whole[stage] else kind
            until_ns = self.world.until_ns[row, self.orders.worker[stage]]
            times[stage, kind] = int(until_ns[cut[stage + 1]] - until_ns[cut[stage]]) + overhead_ns
        return times

    def needed_by(self, action: Action) -> Iterator[tuple[Action, int]]:
        """What waits for it, and how long (ns) the message takes."""
        stage, kind, number = action
        last = len(self.orders.worker) - 1
        if kind == FORWARD and stage == last:
            yield (stage, BACKWARD, number), 0
        elif kind == FORWARD:
            yield (stage + 1, FORWARD, number), self._message_ns(stage, stage + 1, kind)
        elif kind == BACKWARD:
            if stage > 0:
                yield (stage - 1, BACKWARD, number), self._message_ns(stage, stage - 1, kind)
            if not self.orders.whole[stage]:
                yield (stage, WEIGHT, number), 0

    def _message_ns(self, stage: int, target: int, kind: int) -> int:
        link = self.orders.worker[stage], self.orders.worker[target]
        wire_ns = self.world.wire_ns[kind][link][self.orders.cut[max(stage, target)]]
        return int(wire_ns + self.world.latency_ns[link])

    @cached_property
    def end_ns(self) -> dict[Action, int]:
        """When each action ends; in an order in which none stands before what it needs."""
        ready: dict[Action, int] = defaultdict(int)
        missing = {action: 1 for row in self.lists for action in row}
        for action in missing:
            if action[:2] == (0, FORWARD):
                missing[action] = 0
        places, free_ns = [0] * len(self.lists), [0] * len(self.lists)
        ends: dict[Action, int] = {}
        while len(ends) < len(missing):
            for worker, row in enumerate(self.lists):
                while places[worker] < len(row) and not missing[row[places[worker]]]:
                    action = row[places[worker]]
                    begin_ns = max(free_ns[worker], ready[action])
                    ends[action] = free_ns[worker] = begin_ns + self.time_ns[action[:2]]
                    places[worker] += 1
                    for other, message_ns in self.needed_by(action):
                        ready[other] = ends[action] + message_ns
                        missing[other] = 0
        return ends

    @cached_property
    def after_ns(self) -> dict[Action, int]:
        """From the end of each action to the end of the step, at least."""
        follower = {one: other for row in self.lists for one, other in pairwise(row)}
        last = {row[-1]: worker for worker, row in enumerate(self.lists) if row}
        after: dict[Action, int] = {}
        for action in reversed(self.end_ns):
            waits = [(other, message_ns) for other, message_ns in self.needed_by(action)]
            if action in follower:
                waits.append((follower[action], 0))
            after[action] = max(
                (ns + self.time_ns[other[:2]] + after[other] for other, ns in waits), default=0
            )
            if action in last:
                after[action] = max(after[action], self.step_ns(last[action]))
        return after

    def step_ns(self, worker: int) -> int:
        """Of the optimizer on a worker."""
        stages = np.flatnonzero(self.orders.worker == worker)
        until_ns, cut = self.world.step_ns, self.orders.cut
        own_ns = until_ns[cut[stages + 1]] - until_ns[cut[stages]]
        return int(own_ns.sum() + len(stages) * self.world.overhead_ns[0])
