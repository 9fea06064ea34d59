"""Placement and order of the stages of one partition as a CP-SAT model: exact, for small problems.

Every action is an interval on the worker that its stage is placed on; a worker runs one at a time.
Messages take their link in the order in which they were made, memory is a cumulative resource of
each worker, and a backward is whole or split, stage by stage, all as the joint planner's judge has
it.  As there, microbatches are alike, so every stage takes them in turn.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np

from evener.planner.exact.solver import Solved, cp_sat
from evener.planner.joint.orders import Orders
from evener.planner.joint.world import BACKWARD, FORWARD, NEVER, WEIGHT, WHOLE, World

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, IntVar

Cut = tuple[int, ...]
"""Where stages begin, and the number of layers."""


@dataclass
class WholeModel:
    """Minimize the step of one partition.

    at_least_ns, at_most_ns: what the step may be.
    can_be_whole: whether a backward in one piece can be of use.

    on: [stage][worker], whether it is there. whole: [stage]. begin, end: by (stage, kind,
    microbatch). move: by (stage, worker, worker), whether it and the next stage are there.
    """

    world: World
    cut: Cut
    at_least_ns: int
    at_most_ns: int
    can_be_whole: bool
    model: "CpModel" = field(init=False)
    on: list[list[Any]] = field(init=False)
    whole: list[Any] = field(init=False)
    begin: "dict[tuple[int, int, int], IntVar]" = field(default_factory=dict)
    end: dict[tuple[int, int, int], Any] = field(default_factory=dict)
    move: dict[tuple[int, int, int], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model = cp_sat().CpModel()
        self.step = self.model.new_int_var(self.at_least_ns, self.at_most_ns, "step")
        self.num_workers, self.num_microbatches = self.world.sizes[:2].tolist()
        self.stages = range(len(self.cut) - 1)
        self.workers = range(self.num_workers)
        self._place()
        self._run()
        self._hand_on()
        if self.world.cap_bytes.min() < NEVER:
            for worker in self.workers:
                self._hold(worker)
        self.model.minimize(self.step)

    def orders(self, solved: Solved) -> Orders:
        """The lists of a solution."""
        whole = [solved.value(each) for each in self.whole]
        worker = [[solved.value(each) for each in row].index(1) for row in self.on]
        lists: list[list[tuple[tuple[int, ...], int]]] = [[] for _ in self.workers]
        for (stage, kind, microbatch), begin in self.begin.items():
            if kind == WEIGHT and whole[stage]:
                continue
            begin_ns = solved.value(begin)
            end_ns = solved.value(self.end[stage, kind, microbatch])
            # Actions of no time are where their neighbours meet, in the order of their needs.
            way = stage if kind == FORWARD else -stage
            key = (begin_ns, end_ns, kind, microbatch, way)
            lists[worker[stage]].append((key, stage * 3 + kind))
        length = [len(each) for each in lists]
        action = np.zeros((self.num_workers, max(length)), dtype=np.int64)
        for each, actions in enumerate(lists):
            action[each, : length[each]] = [code for _, code in sorted(actions)]
        placed = (np.array(each) for each in (self.cut, worker, whole, action, length))
        return Orders(*placed)

    def _place(self) -> None:
        """Every stage on one worker; of equal workers the first ones, as they come."""
        model = self.model
        self.on = [[model.new_bool_var("") for _ in self.workers] for _ in self.stages]
        self.whole = [model.new_int_var(0, int(self.can_be_whole), "") for _ in self.stages]
        for row in self.on:
            model.add_exactly_one(row)
        if are_alike(self.world):
            for stage, worker in product(self.stages, self.workers[1:]):
                before = [self.on[earlier][worker - 1] for earlier in range(stage)]
                model.add_bool_or([*before, ~self.on[stage][worker]])
        for stage, (source, target) in product(self.stages[:-1], product(self.workers, repeat=2)):
            here, there = self.on[stage][source], self.on[stage + 1][target]
            both = self.move[stage, source, target] = model.new_bool_var("")
            model.add_implication(both, here)
            model.add_implication(both, there)
            model.add_bool_or([both, ~here, ~there])

    def _time_ns(self, stage: int, kind: int, worker: int) -> int:
        until_ns = self.world.until_ns[kind, worker]
        own_ns = until_ns[self.cut[stage + 1]] - until_ns[self.cut[stage]]
        return int(own_ns + self.world.overhead_ns[0])

    def _run(self) -> None:
        """Every action in an interval; then the optimizer."""
        model, step = self.model, self.step
        intervals: dict[int, list[Any]] = defaultdict(list)
        for stage, kind, number in product(
            self.stages, (FORWARD, BACKWARD, WEIGHT), range(self.num_microbatches)
        ):
            action = stage, kind, number
            begin = self.begin[action] = model.new_int_var(0, self.at_most_ns, "")
            self.end[action] = begin + self._length(stage, kind)
            for worker in self.workers:
                intervals[worker] += self._intervals(action, worker)
            if number > 0:
                model.add(begin >= self.end[stage, kind, number - 1])
        for worker in self.workers:
            model.add_no_overlap(intervals[worker])
            step_ns = sum(self._step_ns(stage) * self.on[stage][worker] for stage in self.stages)
            for stage in self.stages:
                here = self.on[stage][worker]
                for kind in (BACKWARD, WEIGHT):
                    last = self.end[stage, kind, self.num_microbatches - 1]
                    model.add(step >= last + step_ns).only_enforce_if(here)
            self._bound_load(worker)

    def _length(self, stage: int, kind: int) -> Any:
        """How long an action takes, wherever it is."""
        terms: list[Any] = []
        for worker, here in zip(self.workers, self.on[stage], strict=True):
            terms.append(self._time_ns(stage, kind, worker) * here)
        if self.can_be_whole and kind != FORWARD:
            length = self.model.new_int_var(0, self.at_most_ns, "")
            for worker, here in zip(self.workers, self.on[stage], strict=True):
                own_ns = self._time_ns(stage, kind, worker)
                whole_ns = self._time_ns(stage, WHOLE, worker) if kind == BACKWARD else 0
                own = own_ns + (whole_ns - own_ns) * self.whole[stage]
                self.model.add(length == own).only_enforce_if(here)
            return length
        return sum(terms)

    def _intervals(self, action: tuple[int, int, int], worker: int) -> list[Any]:
        """Of an action on a worker, each there only if the action is."""
        stage, kind, _ = action
        begin, here = self.begin[action], self.on[stage][worker]
        new = self.model.new_optional_fixed_size_interval_var
        own_ns = self._time_ns(stage, kind, worker)
        if kind == FORWARD or not self.can_be_whole:
            return [new(begin, own_ns, here, "")]
        split = self._both(here, self.whole[stage], 0)
        if kind == WEIGHT:
            return [new(begin, own_ns, split, "")]
        whole = self._both(here, self.whole[stage], 1)
        whole_ns = self._time_ns(stage, WHOLE, worker)
        return [new(begin, own_ns, split, ""), new(begin, whole_ns, whole, "")]

    def _both(self, here: Any, whole: Any, value: int) -> Any:
        """Whether a stage is here and its backward whole (1) or split (0)."""
        both = self.model.new_bool_var("")
        self.model.add(whole == value).only_enforce_if(both)
        self.model.add_implication(both, here)
        self.model.add(whole == 1 - value).only_enforce_if([here, ~both])
        return both

    def _step_ns(self, stage: int) -> int:
        step_ns = self.world.step_ns
        own_ns = step_ns[self.cut[stage + 1]] - step_ns[self.cut[stage]]
        return int(own_ns + self.world.overhead_ns[0])

    def _bound_load(self, worker: int) -> None:
        """What follows from the rest, said so that the solver need not find it.

        A worker runs none of its stages before a forward has come to the first of them.
        """
        head_ns, loads = 0, [self._load_ns(stage, worker) for stage in self.stages]
        for stage in self.stages:
            here = self.on[stage][worker]
            load = sum(loads[s] * self.on[s][worker] for s in self.stages[stage:])
            self.model.add(self.step >= head_ns * here + load)
            head_ns += min(self._time_ns(stage, FORWARD, each) for each in self.workers)

    def _load_ns(self, stage: int, worker: int) -> int:
        forward, split, weight, whole = (
            self._time_ns(stage, k, worker) for k in (FORWARD, BACKWARD, WEIGHT, WHOLE)
        )
        backward = min(split + weight, whole) if self.can_be_whole else split + weight
        own_ns: int = self.num_microbatches * (forward + backward)
        return own_ns + self._step_ns(stage)

    def _hand_on(self) -> None:
        """What an action needs comes before it."""
        last = self.stages[-1]
        messages: dict[tuple[int, int], list[_Message]] = defaultdict(list)
        for stage, number in product(self.stages, range(self.num_microbatches)):
            forward, backward, weight = (
                (stage, kind, number) for kind in (FORWARD, BACKWARD, WEIGHT)
            )
            self.model.add(self.begin[weight] >= self.end[backward])
            if stage == last:
                self.model.add(self.begin[backward] >= self.end[forward])
                continue
            after = (stage + 1, FORWARD, number), (stage + 1, BACKWARD, number)
            self._send(stage, FORWARD, (forward, after[0]), messages)
            self._send(stage, BACKWARD, (after[1], backward), messages)
        for own in messages.values():
            for one, other in combinations(own, 2):
                self._in_turn(one, other)

    def _send(
        self,
        stage: int,
        kind: int,
        pair: tuple[tuple[int, int, int], tuple[int, int, int]],
        messages: "dict[tuple[int, int], list[_Message]]",
    ) -> None:
        """From a stage to the next (F) or back (I); pair: who sends and who needs it."""
        sender, receiver = pair
        cut = self.cut[stage + 1]
        leaves, delay = self.end[sender], 0
        links = [
            (both, (one, other) if kind == FORWARD else (other, one))
            for (at, one, other), both in self.move.items()
            if at == stage and one != other
        ]
        occupied = [int(self.world.wire_ns[kind][link][cut]) for _, link in links]
        if any(occupied):
            leaves = self.model.new_int_var(0, self.at_most_ns, "")
            self.model.add(leaves >= self.end[sender])
            for (both, link), wire_ns in zip(links, occupied, strict=True):
                messages[link].append(_Message(both, self.end[sender], leaves, wire_ns))
        for (both, link), wire_ns in zip(links, occupied, strict=True):
            delay += (wire_ns + int(self.world.latency_ns[link])) * both
        self.model.add(self.begin[receiver] >= leaves + delay)

    def _in_turn(self, one: "_Message", other: "_Message") -> None:
        """Two messages take a link in the order in which they were made."""
        first = self.model.new_bool_var("")
        for a, b, order in ((one, other, first), (other, one, ~first)):
            there = [a.sent, b.sent, order]
            self.model.add(a.made <= b.made).only_enforce_if(there)
            self.model.add(a.leaves + a.wire_ns <= b.leaves).only_enforce_if(there)

    def _hold(self, worker: int) -> None:
        """What a worker keeps stays under its cap."""
        world, model = self.world, self.model
        cap_bytes, again = int(world.cap_bytes[worker]), int(world.sizes[3])
        room = model.new_int_var(0, cap_bytes, "")
        work, repeated = (model.new_int_var(0, cap_bytes, "") for _ in range(2))
        always, intervals, demands = [], [], []
        for stage in self.stages:
            begin, end = self.cut[stage], self.cut[stage + 1]
            here = self.on[stage][worker]
            saved, kept_for_weights, state = (
                int(each[end] - each[begin])
                for each in (world.activation_bytes, world.weight_bytes, world.state_bytes)
            )
            always.append(state * here)
            model.add(work >= int(world.work_bytes[begin:end].max()) * here)
            model.add(repeated >= saved * again * here)
            if again:
                saved = int(world.input_bytes[begin])
            split = self._both(here, self.whole[stage], 0)
            for number in range(self.num_microbatches):
                times = [self.begin[stage, kind, number] for kind in (FORWARD, BACKWARD, WEIGHT)]
                for (since, until), there, size in (
                    (times[:2], here, saved),
                    (times[1:], split, kept_for_weights),
                ):
                    interval = model.new_optional_interval_var(
                        since, model.new_int_var(0, self.at_most_ns, ""), until, there, ""
                    )
                    intervals.append(interval)
                    demands.append(size)
        model.add(room + work + repeated + sum(always) <= cap_bytes)
        model.add_cumulative(intervals, demands, room)


@dataclass(frozen=True)
class _Message:
    """sent: whether it takes the link. made, leaves: when it could, and when it does."""

    sent: Any
    made: Any
    leaves: Any
    wire_ns: int


def are_alike(world: World) -> bool:
    """Whether no plan changes its time if workers change places."""
    others = ~np.eye(len(world.cap_bytes), dtype=bool)
    latency_ns, wire_ns = world.latency_ns[others], world.wire_ns[:, others]
    return bool(
        (world.until_ns == world.until_ns[:, :1]).all()
        and (world.cap_bytes == world.cap_bytes[0]).all()
        and (latency_ns == latency_ns[:1]).all()
        and (wire_ns == wire_ns[:, :1]).all()
    )
