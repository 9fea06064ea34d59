"""What every action of a schedule waits for: ``ir.rules`` applied to one schedule.

The table speaks of stages and microbatches; here they become positions in the flat order (worker
by worker, list order).  Two things are added to the table:

- What a neighbour stage produced on another worker is had through the own RECV once messages are
  written out; before that (compute-only) the producer itself is waited for.
- A worker's list order already says that one compute action follows another.
"""

from bisect import bisect_left
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
_BRAIDED = frozenset({Kind.F, Kind.B, Kind.I, Kind.W})
_SLICE_STEP = {Which.SLICE_BEFORE: -1, Which.SLICE_AFTER: 1}


@dataclass(frozen=True)
class Missing:
    """Something that an action cannot do without. index: of that action, in flat order."""

    index: int
    text: str


@dataclass(frozen=True)
class Dependencies:
    """Who waits for whom, by position in the flat order.

    actions, worker_of: every action and its worker.
    needs: what must have ended before the action starts.  A compute action leaves out the compute
        actions that stand before it in its own list; of all gradients of a worker, the last one
        listed stands for all.
    match: of a SEND its RECV and the other way round, -1 for all others and without a partner.
    collectives: the actions that form one collective, one of each member.
    braids: the two actions of each braid.
    missing: needs that nothing fulfils, or only something later in the same list; messages
        without a partner. Empty for a sound schedule.
    """

    actions: list[Action]
    worker_of: list[int]
    needs: list[tuple[int, ...]]
    match: list[int]
    collectives: list[tuple[int, ...]]
    braids: list[tuple[int, int]]
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
        self.is_compute = {kind: rule.stream is Stream.COMPUTE for kind, rule in RULES.items()}
        self.actions: list[Action] = []
        self.worker_of: list[int] = []
        # The first action listed for each (kind, cell), over all workers.
        self.position: dict[Kind, dict[tuple[int, int | None, int | None], int]] = {
            kind: {} for kind in Kind
        }
        # Actions on a whole stage per (worker, kind), and of these per update, or stage where an
        # action comes again and again; the last action per (worker, kind, stage, update).
        self.listed: dict[tuple[int, Kind], list[int]] = {}
        self.of_update: dict[tuple[int, Kind, int | None], list[int]] = {}
        self.of_stage: dict[tuple[int, Kind, int], list[int]] = {}
        self.last: dict[tuple[int, Kind, int, int], int] = {}
        self.missing: list[Missing] = []
        self._index()
        self.match, self.receive_of = self._match_messages()

    def _index(self) -> None:
        update_of = self.schedule.update_of
        has_one_update = self.schedule.updates.number == 1
        for worker, actions in enumerate(self.schedule.workers):
            first = len(self.actions)
            self.actions += actions
            self.worker_of += [worker] * len(actions)
            for index, action in enumerate(actions, start=first):
                stage, kind, microbatch, token_slice, peer, _ = action
                if not 0 <= stage < self.schedule.num_stages:
                    self._miss(index, f"{action}: stages are 0 to {self.schedule.num_stages - 1}")
                self.position[kind].setdefault((stage, microbatch, token_slice), index)
                update = 0 if has_one_update else update_of(action)
                self.last[worker, kind, stage, update] = index
                if RULES[kind].whole_stage:
                    self.listed.setdefault((worker, kind), []).append(index)
                    self.of_update.setdefault((worker, kind, microbatch), []).append(index)
                    if peer is None:
                        self.of_stage.setdefault((worker, kind, stage), []).append(index)

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
            if link in receives:
                match[index], match[receives[link]] = receives[link], index
        for index, action in enumerate(self.actions):
            if action.kind in MESSAGE_KINDS and match[index] < 0:
                self._miss(index, f"{action} has no partner: drop it, or add the other end once")
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
        needs = [self._needs(index, needs_of[a.kind]) for index, a in enumerate(self.actions)]
        braids = list(self._braids())
        return Dependencies(
            self.actions,
            self.worker_of,
            needs,
            self.match,
            list(self._collectives()),
            braids,
            self.missing,
        )

    def _needs(self, index: int, needs: tuple[Need, ...]) -> tuple[int, ...]:
        """What one action waits for, without what its worker's list order says anyhow."""
        found: list[int] = []
        for need in needs:
            for other in self._find(index, need):
                if self.worker_of[other] != self.worker_of[index]:
                    found.append(other)
                elif other > index:
                    self._miss(index, self._too_early(index, other))
                elif other == index - 1 and self.actions[other] in self.schedule.braids:
                    self._miss(index, self._not_beside(index, other))
                elif not (
                    self.is_compute[self.actions[index].kind]
                    and self.is_compute[self.actions[other].kind]
                ):
                    found.append(other)
        return tuple(found)

    def _find(self, index: int, need: Need) -> Iterable[int]:
        """Flat indices of what fulfils one need of one action."""
        if need.where is Where.PREDECESSORS or need.where is Where.SUCCESSORS:
            if self.actions[index].kind in MESSAGE_KINDS:
                return () if self.match[index] < 0 else (self.match[index],)
            return self._neighbours(index, need)
        if need.where is Where.HOLDERS:
            return self._last_of_holders(index, need)
        if need.where is Where.OWNER:
            return self._of_owner(index, need)
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
                return self._miss(index, self._elsewhere(index, found))
        if need.optional:
            return ()
        wanted = (Action(stage, kind, microbatch, token_slice) for kind in need.kinds)
        return self._miss(index, self._nowhere(index, wanted))

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
                self._miss(index, self._nowhere(index, wanted))
            elif not self.schedule.is_lowered or self.worker_of[producer] == self.worker_of[index]:
                found.append(producer)
            else:
                edge = (neighbour, stage) if forward else (stage, neighbour)
                link = (forward, *edge, microbatch, token_slice)
                receive = self.receive_of.get(link, -1)
                if receive >= 0 and self.worker_of[receive] == self.worker_of[index]:
                    found.append(receive)
                else:
                    self._miss(index, self._not_received(index, producer))
        return found

    def _last_of_worker(self, index: int, need: Need) -> Iterable[int]:
        action, worker = self.actions[index], self.worker_of[index]
        if need.where is Where.EVERY_STAGE:
            stages: Iterable[int] = self.schedule.stages_of_worker[worker]
        else:
            stages = [stage for stage in (action.stage, action.peer) if stage is not None]
        last = self._last(worker, stages, index, need)
        if last >= 0:
            return (last,)
        kinds = " or ".join(need.kinds)
        return self._miss(index, f"{action} needs {kinds} of its stage, but the worker runs none")

    def _last(self, worker: int, stages: Iterable[int], index: int, need: Need) -> int:
        """The last action that a worker lists of the kinds, in the update of an action; or -1."""
        update = self.schedule.update_of(self.actions[index])
        return max(
            (
                self.last.get((worker, kind, stage, update), -1)
                for stage in stages
                for kind in need.kinds
            ),
            default=-1,
        )

    def _last_of_holders(self, index: int, need: Need) -> Iterable[int]:
        """For the owner alone: the others wait for it."""
        stage = self.actions[index].stage
        holders = self._holders(stage)
        is_owner = self.worker_of[index] in holders[:1]
        if len(holders) < 2 or not is_owner or self._stands_for(index, need):
            return ()
        found = (self._last(worker, (stage,), index, need) for worker in holders)
        return [last for last in found if last >= 0]

    def _of_owner(self, index: int, need: Need) -> Iterable[int]:
        """Its STEP before it shares, and before that of the others, who wait for the SHARE."""
        stage, kind, update, _, _, _ = self.actions[index]
        holders = self._holders(stage)
        is_owner = self.worker_of[index] in holders[:1]
        if len(holders) < 2 or is_owner != (kind is Kind.SHARE) or self._stands_for(index, need):
            return ()
        (wanted,) = need.kinds
        by = self.worker_of[index] if wanted is Kind.SHARE else holders[0]
        listed = self.of_update.get((by, wanted, update), [])
        return [j for j in listed if self.actions[j].stage == stage]

    def _stands_for(self, index: int, need: Need) -> bool:
        """Whether the worker lists the action that ends a need, of the stage itself."""
        if need.until is None:
            return False
        return (self.worker_of[index], need.until, self.actions[index].stage) in self.of_stage

    def _holders(self, stage: int) -> tuple[int, ...]:
        inside = 0 <= stage < self.schedule.num_stages
        return self.schedule.workers_of_stage[stage] if inside else ()

    def _whole_stage(self, index: int, need: Need) -> Iterable[int]:
        """Those of the update; of an action that comes again (GATHER), the last one before."""
        stage, _, update, _, _, _ = self.actions[index]
        (kind,) = need.kinds
        worker = self.worker_of[index]
        if kind is Kind.GATHER:
            own = self.of_stage.get((worker, kind, stage), [])
            return own and (own[max(0, bisect_left(own, index) - 1)],)
        of_update = self.of_update.get((worker, kind, update), [])
        if need.where is Where.EVERY_STAGE:
            return of_update
        return [j for j in of_update if stage in (self.actions[j].stage, self.actions[j].peer)]

    def _collectives(self) -> Iterator[tuple[int, ...]]:
        """Groups of actions that run as one: the n-th of its text on each worker that lists it."""
        groups: dict[tuple[object, ...], list[int]] = {}
        for (worker, kind), listed in self.listed.items():
            if RULES[kind].stream is not Stream.COLLECTIVE:
                continue
            seen: dict[tuple[int, int | None, int | None], int] = {}
            for index in listed:
                stage, _, update, _, peer, _ = self.actions[index]
                key = (stage, peer, update)
                occurrence = seen[key] = seen.get(key, -1) + 1
                # NORM bears the lowest stage of each worker; RELEASE concerns its worker alone.
                name = update if kind is Kind.NORM else key
                alone = worker if kind is Kind.RELEASE else None
                groups.setdefault((kind, name, alone, occurrence), []).append(index)
        return map(tuple, groups.values())

    def _braids(self) -> Iterator[tuple[int, int]]:
        """Each forward that begins a braid, and the action right behind it."""
        braids = self.schedule.braids
        if not braids:
            return
        for index, action in enumerate(self.actions):
            if action not in braids:
                continue
            behind = index + 1
            if behind == len(self.actions) or self.worker_of[behind] != self.worker_of[index]:
                self._miss(index, f"{action} begins a braid, but nothing stands behind it")
            elif action.kind is not Kind.F or self.actions[behind].kind not in _BRAIDED:
                self._miss(index, _no_braid(action, self.actions[behind]))
            elif action.slice is not None or self.actions[behind].slice is not None:
                self._miss(index, f"{action} begins a braid: braid whole microbatches, not slices")
            elif self.actions[behind] in braids:
                self._miss(index, f"{self.actions[behind]} is in two braids: keep one")
            else:
                yield index, behind

    def _miss(self, index: int, text: str) -> tuple[()]:
        self.missing.append(Missing(index, f"worker {self.worker_of[index]}: {text}"))
        return ()

    def _nowhere(self, index: int, wanted: Iterable[Action]) -> str:
        names = " or ".join(map(str, wanted))
        return f"{self.actions[index]} needs {names}, which no worker runs: add it"

    def _elsewhere(self, index: int, found: int) -> str:
        return (
            f"{self.actions[index]} needs {self.actions[found]}, which worker "
            f"{self.worker_of[found]} runs: give both to one worker"
        )

    def _too_early(self, index: int, other: int) -> str:
        return (
            f"{self.actions[index]} stands before {self.actions[other]}, which it needs: "
            "move it behind"
        )

    def _not_beside(self, index: int, other: int) -> str:
        return (
            f"{self.actions[index]} is braided with {self.actions[other]}, which it needs: "
            "braid actions that do not wait for each other"
        )

    def _not_received(self, index: int, producer: int) -> str:
        return (
            f"{self.actions[index]} needs {self.actions[producer]} of worker "
            f"{self.worker_of[producer]}, but does not receive it: add the messages"
        )


def _no_braid(first: Action, second: Action) -> str:
    # A forward takes memory when it starts, the others give it back when they end: in this order
    # memory is that of the list.
    return f"{first} and {second} make no braid: write F first, then F, B, I or W"
