"""Thousands of random schedules, legal and broken, against a replay that shares nothing with it.

The replay is the plainest machine that could run a schedule: workers that obey their lists, and
messages that meet in a rendezvous, in the order of each pair of workers.  It looks at nothing in
advance.  A schedule that it runs to the end, with every gradient there, is legal; no other is.
"""

from collections import Counter, defaultdict, deque
from random import Random

import pytest

from evener.cost.table import CostTable
from evener.ir.action import Action, Kind
from evener.ir.check import violations
from evener.ir.schedule import Schedule
from evener.ir.text import format_schedule, parse_schedule
from evener.sim import simulate
from evener.testing.random_schedules import mutate, random_lowered_schedule, random_schedule

F, B, I, W, R = Kind.F, Kind.B, Kind.I, Kind.W, Kind.R  # noqa: E741
DOWNSTREAM = (Kind.SEND_F, Kind.RECV_B)
SENDS = (Kind.SEND_F, Kind.SEND_B)
MESSAGES = (*SENDS, Kind.RECV_F, Kind.RECV_B)
WHOLE_STAGE = (Kind.REDUCE, Kind.NORM, Kind.STEP)


# What moves to the host and back, step by step.
NEEDED_TO_MOVE = {Kind.OFFLOAD: F, Kind.FREE: Kind.OFFLOAD, Kind.RELOAD: Kind.FREE}


class Stuck(Exception):
    """The machine cannot go on, or did what it must not do."""


def require(fact: bool) -> None:
    if not fact:
        raise Stuck


class Worker:
    """What one worker has done, in its own words."""

    def __init__(self, machine: "Machine", number: int) -> None:
        self.machine = machine
        self.number = number
        self.to_issue = deque(machine.schedule.workers[number])
        self.messages: dict[int, deque[Action]] = defaultdict(deque)
        self.collectives: deque[Action] = deque()
        self.done: set[Action] = set()
        self.received: set[tuple[Kind, int, int, Action]] = set()
        self.issued: Counter[Action] = Counter()

    def has(self, action: Action, *kinds: Kind) -> bool:
        return any(action._replace(kind=kind) in self.done for kind in kinds)

    def listed(self, action: Action, kind: Kind) -> bool:
        wanted = action._replace(kind=kind)
        return wanted in self.done or wanted in self.to_issue

    def issue(self) -> bool:
        """Issue one action if the list allows it now."""
        if not self.to_issue:
            return False
        action = self.to_issue[0]
        if action.kind in (F, B, I, W, R, Kind.STEP):
            if not self.ready(action):
                return False
            require(action not in self.done)
            self.done.add(action)
        elif action.kind in NEEDED_TO_MOVE:
            require(action.peer is None)
            require(self.has(action, NEEDED_TO_MOVE[action.kind]))
            self.done.add(action)
        elif action.kind in (Kind.REDUCE, Kind.NORM):
            require(self.gradients_are_there(action))
            self.collectives.append(action)
        else:
            peer = self.machine.peer(self.number, action)
            if action.kind in SENDS:
                made = (F,) if action.kind is Kind.SEND_F else (B, I)
                require(self.has(action._replace(peer=None), *made))
            self.messages[peer].append(action)
        self.issued[action] += 1
        require(self.issued[action] == 1)
        self.to_issue.popleft()
        return True

    def ready(self, action: Action) -> bool:
        machine = self.machine
        if action.kind is Kind.STEP:
            return self.ready_to_step(action)
        require(action.peer is None)
        if action.kind is F:
            before = action._replace(slice=(action.slice or 0) - 1)
            return (not action.slice or self.has(before, F)) and all(
                self.reads(F, stage, action.stage, action) for stage in machine.before[action.stage]
            )
        if action.kind is R:
            require(not self.has(action, B, I))
            return self.has(action, F) and self.is_back(action)
        if action.kind is W:
            return self.has(action, I)
        require(not self.has(action, B, I))
        last = action.slice is None or action.slice + 1 == machine.schedule.num_slices
        after = action if last else action._replace(slice=(action.slice or 0) + 1)
        return (
            self.has(action, F)
            and (last or self.has(after, B, I))
            and (self.has(action, R) or not self.listed(action, R))
            and self.is_back(action)
            and all(
                self.reads(B, action.stage, stage, action) for stage in machine.after[action.stage]
            )
        )

    def is_back(self, action: Action) -> bool:
        """Whether what was moved to the host is here again, if it was moved."""
        return self.has(action, Kind.RELOAD) or not self.listed(action, Kind.RELOAD)

    def reads(self, way: Kind, producer: int, consumer: int, action: Action) -> bool:
        """Whether the tensor of an edge is here: made here, or received."""
        source = action._replace(stage=producer if way is F else consumer)
        kinds = (F,) if way is F else (B, I)
        if not self.machine.has_messages:
            return any(worker.has(source, *kinds) for worker in self.machine.workers)
        cell = action._replace(stage=0, kind=F)
        return self.has(source, *kinds) or (way, producer, consumer, cell) in self.received

    def own_stages(self) -> set[int]:
        return {
            action.stage
            for action in self.machine.schedule.workers[self.number]
            if action.kind is F
        }

    def gradients_are_there(self, action: Action) -> bool:
        """All gradients that the collective adds up, made before it in the list."""
        stages = self.own_stages()
        if action.kind is Kind.REDUCE:
            stages &= {action.stage, action.stage if action.peer is None else action.peer}
        else:
            require(not any(other.kind is Kind.REDUCE for other in self.to_issue))
        require(bool(stages))
        return not any(
            other.kind in (F, B, I, W) and other.stage in stages for other in self.to_issue
        )

    def ready_to_step(self, action: Action) -> bool:
        require(action.stage in self.own_stages())
        rest = [*self.to_issue][1:]
        require(not any(o.kind in (F, B, I, W, R) and o.stage == action.stage for o in rest))
        require(not any(o.kind is Kind.NORM for o in rest))
        concerned = [o for o in (*rest, *self.collectives) if o.kind is Kind.REDUCE]
        require(not any(action.stage in (o.stage, o.peer) for o in rest if o.kind is Kind.REDUCE))
        return not any(action.stage in (o.stage, o.peer) for o in concerned) and not any(
            o.kind is Kind.NORM for o in self.collectives
        )


class Machine:
    """All workers, and what happens between them."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        stages = range(schedule.num_stages)
        edges = schedule.edges
        if edges is None:
            edges = tuple((stage, stage + 1) for stage in stages if stage + 1 in stages)
        self.after = {stage: [b for a, b in edges if a == stage] for stage in stages}
        self.before = {stage: [a for a, b in edges if b == stage] for stage in stages}
        for action in (action for actions in schedule.workers for action in actions):
            self.require_in_range(action)
        listed = {action for actions in schedule.workers for action in actions}
        for action in listed:
            if action.kind is Kind.OFFLOAD:
                require(listed >= {action._replace(kind=kind) for kind in NEEDED_TO_MOVE})
        self.has_messages = any(a.kind in MESSAGES for actions in schedule.workers for a in actions)
        self.workers = [Worker(self, number) for number in range(len(schedule.workers))]
        self.home: dict[tuple[int, int | None, int | None], set[int]] = defaultdict(set)
        for worker in self.workers:
            for action in worker.to_issue:
                if action.kind is F:
                    self.home[action.stage, action.microbatch, action.slice].add(worker.number)

    def require_in_range(self, action: Action) -> None:
        schedule = self.schedule
        require(0 <= action.stage < schedule.num_stages)
        if action.kind in WHOLE_STAGE:
            require(action.microbatch is None and action.slice is None)
        else:
            require(action.microbatch in range(schedule.num_microbatches))
            slices = (None,) if schedule.num_slices == 1 else range(schedule.num_slices)
            require(action.slice in slices)

    def edge(self, action: Action) -> tuple[int, int]:
        """The (producer, consumer) edge that a message runs along."""
        down = action.kind in DOWNSTREAM
        others = (self.after if down else self.before)[action.stage]
        peer = others[0] if action.peer is None and len(others) == 1 else action.peer
        require(peer in others)
        assert peer is not None
        return (action.stage, peer) if down else (peer, action.stage)

    def peer(self, worker: int, action: Action) -> int:
        """The worker at the other end of a message that is at home on this worker."""
        ends = [self.home[s, action.microbatch, action.slice] for s in self.edge(action)]
        own, other = ends if action.kind in DOWNSTREAM else ends[::-1]
        require(own == {worker} and len(other) == 1 and own != other)
        return next(iter(other))

    def meet(self, first: Worker, second: Worker) -> bool:
        """Let the two messages in front meet; they must be two ends of one."""
        ours, theirs = first.messages[second.number], second.messages[first.number]
        if not (ours and theirs):
            return False
        pair = sorted((ours.popleft(), theirs.popleft()), key=lambda a: a.kind in SENDS)
        receive, send = pair
        partner = {Kind.RECV_F: Kind.SEND_F, Kind.RECV_B: Kind.SEND_B}.get(receive.kind)
        require(send.kind is partner and self.edge(send) == self.edge(receive))
        require((send.microbatch, send.slice) == (receive.microbatch, receive.slice))
        way = F if send.kind is Kind.SEND_F else B
        cell = receive._replace(stage=0, kind=F, peer=None)
        receiver = second if send in first.issued else first
        receiver.received.add((way, *self.edge(receive), cell))
        return True

    def members(self, action: Action) -> set[int]:
        stages = {action.stage, action.stage if action.peer is None else action.peer}
        return {
            worker.number
            for worker in self.workers
            for stage in worker.own_stages()
            if action.kind is Kind.NORM or stage in stages
        }

    def gather(self) -> bool:
        """Let one collective happen that is in front of all its members."""
        for worker in self.workers:
            if worker.collectives:
                action = worker.collectives[0]
                members = [self.workers[number] for number in self.members(action)]
                require(worker in members)

                def name(action: Action) -> Action:
                    return action._replace(stage=0) if action.kind is Kind.NORM else action

                fronts = [m.collectives[0] if m.collectives else None for m in members]
                if all(front and name(front) == name(action) for front in fronts):
                    for member in members:
                        member.done.add(member.collectives.popleft())
                    return True
        return False

    def run(self) -> None:
        moved = True
        while moved:
            moved = bool(sum(worker.issue() for worker in self.workers))
            for first in self.workers:
                for second in self.workers[first.number + 1 :]:
                    moved |= self.meet(first, second)
            moved |= self.gather()
        for worker in self.workers:
            require(not worker.to_issue and not worker.collectives)
            require(not any(worker.messages.values()))
        self.require_complete()

    def require_complete(self) -> None:
        schedule = self.schedule
        slices = (None,) if schedule.num_slices == 1 else range(schedule.num_slices)
        done = [Counter(worker.done) for worker in self.workers]
        total = sum(done, Counter())
        for stage in range(schedule.num_stages):
            holders = {w.number for w in self.workers if stage in w.own_stages()}
            for microbatch in range(schedule.num_microbatches):
                for token_slice in slices:
                    cell = Action(stage, F, microbatch, token_slice)
                    count = {kind: total[cell._replace(kind=kind)] for kind in (F, B, I, W)}
                    require(count[F] == 1 and count[B] + count[I] == 1 and count[W] == count[I])
            if any(action.kind is Kind.STEP for action in total):
                for number in holders:
                    require(Action(stage, Kind.STEP) in self.workers[number].done)
                reduced = [a for a in total if a.kind is Kind.REDUCE and stage in (a.stage, a.peer)]
                require(len(holders) == 1 or bool(reduced))


def runs(schedule: Schedule) -> bool:
    """The verdict of the replay."""
    try:
        Machine(schedule).run()
    except Stuck:
        return False
    return True


def shown(schedule: Schedule) -> str:
    return f"{format_schedule(schedule)}\n{violations(schedule)}"


def check_legal(seeds: range) -> None:
    for seed in seeds:
        random = Random(seed)
        schedule = random_lowered_schedule(random)
        assert violations(schedule) == [], shown(schedule)
        assert runs(schedule), shown(schedule)
        assert parse_schedule(format_schedule(schedule)) == schedule
        costs = CostTable.uniform(schedule.num_workers, schedule.num_stages, forward_ns=3)
        timeline = simulate(schedule, costs)
        assert len(timeline.end_ns) == schedule.num_actions


def check_mutated(seeds: range) -> tuple[int, int]:
    """Compare the verdicts; returns how many were legal all the same, and how many were not."""
    num_legal = 0
    for seed in seeds:
        random = Random(seed)
        # In one of three the messages are not written out: tensors are where they are needed.
        draw = random_schedule if seed % 3 == 0 else random_lowered_schedule
        schedule = draw(random)
        for _ in range(random.choice((1, 1, 1, 2))):
            if schedule.num_actions:
                schedule = mutate(random, schedule)
        legal = not violations(schedule)
        assert legal == runs(schedule), f"seed {seed}: legal {legal}\n{shown(schedule)}"
        num_legal += legal
        if legal:
            costs = CostTable.uniform(schedule.num_workers, schedule.num_stages, forward_ns=3)
            assert len(simulate(schedule, costs).end_ns) == schedule.num_actions
    return num_legal, len(seeds) - num_legal


@pytest.mark.timeout(300)
def test_legal_schedules_pass_and_run_to_the_end() -> None:
    check_legal(range(1_000))


@pytest.mark.timeout(300)
def test_mutated_schedules_are_refused_exactly_if_they_do_not_run() -> None:
    num_legal, num_refused = check_mutated(range(1_000))
    assert num_legal > 50
    assert num_refused > 600


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ten_thousand_legal_schedules() -> None:
    check_legal(range(1_000, 11_000))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ten_thousand_mutated_schedules() -> None:
    check_mutated(range(1_000, 11_000))
