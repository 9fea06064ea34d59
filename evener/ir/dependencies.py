"""What every action of a schedule waits for: ``ir.rules`` applied to one schedule.

The table speaks of stages and microbatches; here they become positions in the flat order (worker
by worker, list order).  Two things are added to the table:

- What a neighbour stage produced on another worker is had through the own RECV once messages are
  written out; before that (compute-only) the producer itself is waited for.
- A worker's list order already says that one compute action follows another.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from evener.ir.action import Action, Kind
from evener.ir.rules import RULES, Need, Stream, Where, Which
from evener.ir.schedule import MESSAGE_KINDS, Schedule

Link: TypeAlias = tuple[bool, int, int, int | None, int | None]
"""One message: (is it an activation, producer stage of the activation, consumer, mb, slice)."""

_SENDS = frozenset({Kind.SEND_F, Kind.SEND_B})
_FORWARD_MESSAGES = frozenset({Kind.SEND_F, Kind.RECV_F})
_SLICE_STEP = {Which.SLICE_BEFORE: -1, Which.SLICE_AFTER: 1}


@dataclass(frozen=True)
class Missing:
    """A need that nothing in the schedule fulfils. index: of the needy action, in flat order."""

    index: int
    need: Need
    text: str


@dataclass(frozen=True)
class Dependencies:
    """Who waits for whom, by position in the flat order.

    actions, worker_of: every action and its worker.
    needs: what must have ended before the action starts.  Reduced: a compute action leaves out the
        compute actions that stand before it in its own list, and of several needs on one stream of
        its own worker only the last one listed is kept.
    match: of a SEND its RECV and the other way round, -1 for all others and without a partner.
    collectives: the actions that form one collective, one of each member.
    missing: needs that nothing fulfils; empty for a sound schedule.
    """

    actions: list[Action]
    worker_of: list[int]
    needs: list[tuple[int, ...]]
    match: list[int]
    collectives: list[tuple[int, ...]]
    missing: list[Missing]


def resolve(schedule: Schedule) -> Dependencies:
    """Find what every action waits for. Linear in the number of actions; raises nothing."""
    return _Resolver(schedule).run()


def link_of(schedule: Schedule, action: Action) -> Link | None:
    """The message that a SEND or RECV belongs to; None if its peer is unclear or no neighbour."""
    forward = action.kind in _FORWARD_MESSAGES
    downstream = action.kind in (Kind.SEND_F, Kind.RECV_B)
    stage, _, microbatch, token_slice, peer, _ = action
    if not 0 <= stage < schedule.num_stages:
        return None
    neighbours = schedule.successors[stage] if downstream else schedule.predecessors[stage]
    if peer is None and len(neighbours) == 1:
        peer = neighbours[0]
    if peer is None or peer not in neighbours:
        return None
    producer, consumer = (stage, peer) if downstream else (peer, stage)
    return (forward, producer, consumer, microbatch, token_slice)


class _Resolver:
    """Indices of one schedule, and the look-ups that the needs are made of."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.actions: list[Action] = []
        self.worker_of: list[int] = []
        # The first action listed for each (kind, cell), over all workers.
        self.position: dict[Kind, dict[tuple[int, int | None, int | None], int]] = {
            kind: {} for kind in Kind
        }
        # Per (worker, kind), all and the last per stage.
        self.listed: dict[tuple[int, Kind], list[int]] = {}
        self.last: dict[tuple[int, Kind, int], int] = {}
        self._index()
        self.match, self.receive_of = self._match_messages()
        self.missing: list[Missing] = []

    def _index(self) -> None:
        for worker, actions in enumerate(self.schedule.workers):
            for index, action in enumerate(actions, start=len(self.actions)):
                stage, kind, microbatch, token_slice, peer, _ = action
                self.position[kind].setdefault((stage, microbatch, token_slice), index)
                self.last[worker, kind, stage] = index
                if RULES[kind].whole_stage:
                    self.listed.setdefault((worker, kind), []).append(index)
                    if peer is not None:  # a reduction of parameters that two stages share
                        self.last[worker, kind, peer] = index
            self.actions += actions
            self.worker_of += [worker] * len(actions)

    def _match_messages(self) -> tuple[list[int], dict[Link, int]]:
        sends: dict[Link, int] = {}
        receives: dict[Link, int] = {}
        for index, action in enumerate(self.actions):
            if action.kind in MESSAGE_KINDS:
                link = link_of(self.schedule, action)
                if link is not None:
                    (sends if action.kind in _SENDS else receives).setdefault(link, index)
        match = [-1] * len(self.actions)
        for link, index in sends.items():
            partner = receives.get(link, -1)
            if partner >= 0:
                match[index], match[partner] = partner, index
        return match, receives

    def run(self) -> Dependencies:
        present = {kind for kind in Kind if self.position[kind]}
        needs_of = {
            kind: tuple(
                need
                for need in RULES[kind].needs
                if (not need.optional or not present.isdisjoint(need.kinds))
                and (self.schedule.num_slices > 1 or need.which not in _SLICE_STEP)
            )
            for kind in present
        }
        needs = [
            self._reduce(
                index, [j for need in needs_of[action.kind] for j in self._find(index, need)]
            )
            for index, action in enumerate(self.actions)
        ]
        return Dependencies(
            self.actions,
            self.worker_of,
            needs,
            self.match,
            list(self._collectives()),
            self.missing,
        )

    def _find(self, index: int, need: Need) -> Iterable[int]:
        """Flat indices of what fulfils one need of one action."""
        if need.where is Where.PREDECESSORS or need.where is Where.SUCCESSORS:
            if self.actions[index].kind in MESSAGE_KINDS:
                return self._partner(index, need)
            return self._neighbours(index, need)
        if need.which is Which.ALL:
            return self._last_of_worker(index, need)
        if need.which is Which.STAGE:
            return self._whole_stage(index, need)
        return self._same_stage(index, need)

    def _same_stage(self, index: int, need: Need) -> Iterable[int]:
        stage, _, microbatch, token_slice, _, _ = self.actions[index]
        if need.which is not Which.SAME:
            if token_slice is None:
                return ()
            token_slice += _SLICE_STEP[need.which]
            if not 0 <= token_slice < self.schedule.num_slices:
                return ()
        for kind in need.kinds:
            found = self.position[kind].get((stage, microbatch, token_slice))
            if found is not None:
                if self.worker_of[found] == self.worker_of[index]:
                    return (found,)
                return self._miss(index, need, self._elsewhere(index, found))
        if need.optional:
            return ()
        wanted = (Action(stage, kind, microbatch, token_slice) for kind in need.kinds)
        return self._miss(index, need, self._nowhere(index, wanted))

    def _neighbours(self, index: int, need: Need) -> list[int]:
        stage, _, microbatch, token_slice, _, _ = self.actions[index]
        if not 0 <= stage < self.schedule.num_stages:
            return []
        forward = need.where is Where.PREDECESSORS
        table = self.schedule.predecessors if forward else self.schedule.successors
        found = []
        for neighbour in table[stage]:
            producer = -1
            for kind in need.kinds:
                producer = self.position[kind].get((neighbour, microbatch, token_slice), -1)
                if producer >= 0:
                    break
            if producer < 0:
                wanted = (Action(neighbour, kind, microbatch, token_slice) for kind in need.kinds)
                self._miss(index, need, self._nowhere(index, wanted))
            elif not self.schedule.is_lowered or self.worker_of[producer] == self.worker_of[index]:
                found.append(producer)
            else:
                edge = (neighbour, stage) if forward else (stage, neighbour)
                link = (forward, *edge, microbatch, token_slice)
                receive = self.receive_of.get(link, -1)
                if receive >= 0 and self.worker_of[receive] == self.worker_of[index]:
                    found.append(receive)
                else:
                    self._miss(index, need, self._not_received(index, producer))
        return found

    def _partner(self, index: int, need: Need) -> Iterable[int]:
        partner = self.match[index]
        if partner >= 0:
            return (partner,)
        return self._miss(index, need, f"{self._name(index)} has no matching send: add one")

    def _last_of_worker(self, index: int, need: Need) -> Iterable[int]:
        action, worker = self.actions[index], self.worker_of[index]
        if need.where is Where.EVERY_STAGE:
            stages: Iterable[int] = self.schedule.stages_of_worker[worker]
        else:
            stages = [stage for stage in (action.stage, action.peer) if stage is not None]
        last = max(
            (self.last.get((worker, kind, stage), -1) for stage in stages for kind in need.kinds),
            default=-1,
        )
        if last >= 0:
            return (last,)
        kinds = " or ".join(need.kinds)
        return self._miss(
            index, need, f"{self._name(index)} needs {kinds} of its stage, but its worker has none"
        )

    def _whole_stage(self, index: int, need: Need) -> Iterable[int]:
        """The last listed, or of actions that come again (GATHER) the last one before."""
        stage, worker = self.actions[index].stage, self.worker_of[index]
        (kind,) = need.kinds
        listed = self.listed.get((worker, kind))
        if listed is None:
            return ()
        if need.where is Where.EVERY_STAGE:
            return (listed[-1],)
        last = self.last.get((worker, kind, stage))
        if last is None:
            return ()
        if last < index or kind is not Kind.GATHER:
            return (last,)
        own = [j for j in listed if self.actions[j].stage == stage]
        return (max((j for j in own if j < index), default=own[0]),)

    def _reduce(self, index: int, found: list[int]) -> tuple[int, ...]:
        if not found:
            return ()
        worker = self.worker_of[index]
        is_compute = RULES[self.actions[index].kind].stream is Stream.COMPUTE
        kept: dict[object, int] = {}
        for j in found:
            if self.worker_of[j] != worker:
                kept[j] = j
                continue
            stream = RULES[self.actions[j].kind].stream
            if is_compute and stream is Stream.COMPUTE and j < index:
                continue
            key: object = stream
            if stream is Stream.MESSAGE and self.match[j] >= 0:
                key = (stream, self.worker_of[self.match[j]])
            kept[key] = max(j, kept.get(key, j))
        return tuple(kept.values())

    def _collectives(self) -> Iterator[tuple[int, ...]]:
        """Groups of actions that run as one: the n-th of its text on each worker that lists it."""
        groups: dict[tuple[object, ...], list[int]] = {}
        for (worker, kind), listed in self.listed.items():
            if RULES[kind].stream is not Stream.COLLECTIVE:
                continue
            seen: dict[tuple[int, int | None], int] = {}
            for index in listed:
                stage, _, _, _, peer, _ = self.actions[index]
                occurrence = seen[stage, peer] = seen.get((stage, peer), -1) + 1
                # NORM bears the lowest stage of each worker; RELEASE concerns its worker alone.
                name = None if kind is Kind.NORM else (stage, peer)
                alone = worker if kind is Kind.RELEASE else None
                groups.setdefault((kind, name, alone, occurrence), []).append(index)
        return map(tuple, groups.values())

    def _miss(self, index: int, need: Need, text: str) -> tuple[()]:
        self.missing.append(Missing(index, need, text))
        return ()

    def _name(self, index: int) -> str:
        return f"worker {self.worker_of[index]}: {self.actions[index]}"

    def _nowhere(self, index: int, wanted: Iterable[Action]) -> str:
        return (
            f"{self._name(index)} needs {' or '.join(map(str, wanted))}, "
            "which no worker runs: add it"
        )

    def _elsewhere(self, index: int, found: int) -> str:
        return (
            f"{self._name(index)} needs {self.actions[found]}, which worker "
            f"{self.worker_of[found]} runs: give both to one worker"
        )

    def _not_received(self, index: int, producer: int) -> str:
        return (
            f"{self._name(index)} needs {self.actions[producer]} of worker "
            f"{self.worker_of[producer]}, but does not receive it: add the messages"
        )
