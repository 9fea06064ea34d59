"""One order in which all actions can run, or the cycle of waits that makes it impossible.

A schedule is played in thought with blocking rendezvous: a message is one event of both workers, a
collective one event of all members, a braid one event of its two actions.  An event comes after
what it needs, after the last compute action that stands before it in each list that holds it, and
after the event before it on the stream of each of its workers.  The schedule runs to the end,
whatever the times are, if and only if these waits have no cycle.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from evener.errors import ScheduleError
from evener.ir.action import Kind
from evener.ir.dependencies import Dependencies, resolve
from evener.ir.rules import RULES, Stream
from evener.ir.schedule import MESSAGE_KINDS, Schedule

Queue: TypeAlias = tuple[Stream, int]
"""A stream of one worker; for messages with the worker at the other end, else -1."""

_COMPUTE: Queue = (Stream.COMPUTE, -1)

# Enough starting points for a short cycle where a walk finds a long one.
_MAX_STARTS = 16


@dataclass(frozen=True)
class Order:
    """Positions are in flat order; -1 means none.

    order: one order in which all actions can run; SEND before its RECV and the members of a
        collective or braid next to one another.  Short of the stuck ones if ``cycle`` is not empty.
    issue_after: of each action, the last compute action before it in its worker's list.
    stream_after: of each action that is not compute, the one before it on its stream (messages:
        the stream of the pair of workers, both directions).
    cycle: waits as sentences, each for the next and the last for the first.
    """

    order: list[int]
    issue_after: list[int]
    stream_after: list[int]
    cycle: tuple[str, ...]


def find_order(dependencies: Dependencies) -> Order:
    """Order all actions. Linear in the number of actions; raises nothing."""
    return _Graph(dependencies).order()


def require_order(schedule: Schedule) -> tuple[Dependencies, Order]:
    """What waits for what, and an order. Raises ScheduleError if needs are open or circular."""
    dependencies = resolve(schedule)
    if dependencies.missing:
        raise ScheduleError(
            f"schedule {schedule.name} cannot run", [m.text for m in dependencies.missing]
        )
    order = find_order(dependencies)
    if order.cycle:
        raise ScheduleError(
            f"schedule {schedule.name} cannot run to the end", [deadlock_text(order)]
        )
    return dependencies, order


def deadlock_text(order: Order) -> str:
    """The cycle of waits as one violation of several lines."""
    lines = ("deadlock, each waits for the next and the last for the first:", *order.cycle)
    return "\n      ".join((*lines, "move one of these in its worker's list"))


class _Graph:
    """Events and their waits. An event is named by the lowest flat index of its actions."""

    def __init__(self, dependencies: Dependencies) -> None:
        self.actions = dependencies.actions
        self.worker_of = dependencies.worker_of
        self.needs = dependencies.needs
        self.match = dependencies.match
        self.event_of = list(range(len(self.actions)))
        self.members: dict[int, tuple[int, ...]] = {}
        for send, receive in enumerate(self.match):
            if receive >= 0 and self.actions[send].kind in (Kind.SEND_F, Kind.SEND_B):
                self._merge((send, receive))
        for group in (*dependencies.collectives, *dependencies.braids):
            self._merge(group)
        self.queue_of: list[Queue] = []
        self.issue_after: list[int] = []
        self.stream_after: list[int] = []
        self._read_lists()

    def _merge(self, group: tuple[int, ...]) -> None:
        event = min(group)
        self.members[event] = group
        for index in group:
            self.event_of[index] = event

    def _read_lists(self) -> None:
        """Fill in what list order says, worker by worker."""
        last_compute: dict[int, int] = {}
        last: dict[tuple[int, Queue], int] = {}
        for index, worker in enumerate(self.worker_of):
            stream = RULES[self.actions[index].kind].stream
            partner = self.match[index]
            queue = (stream, self.worker_of[partner] if partner >= 0 else -1)
            self.queue_of.append(queue)
            self.issue_after.append(last_compute.get(worker, -1))
            if stream is Stream.COMPUTE:
                last_compute[worker] = index
                self.stream_after.append(-1)
            else:
                self.stream_after.append(last.get((worker, queue), -1))
                last[worker, queue] = index

    def order(self) -> Order:
        num_open = [0] * len(self.actions)
        followers: list[list[int]] = [[] for _ in self.actions]
        for index, event in enumerate(self.event_of):
            for before in self._waits(index):
                other = self.event_of[before]
                if other != event:
                    followers[other].append(event)
                    num_open[event] += 1
        ready = [i for i, event in enumerate(self.event_of) if i == event and not num_open[i]]
        order: list[int] = []
        for event in ready:  # grows while it is read
            order.extend(self.members.get(event, (event,)))
            for follower in followers[event]:
                num_open[follower] -= 1
                if not num_open[follower]:
                    ready.append(follower)
        stuck = {event for event, number in enumerate(num_open) if number}
        cycle = self._sentences(self._cycle(stuck)) if stuck else ()
        return Order(order, self.issue_after, self.stream_after, cycle)

    def _waits(self, index: int) -> Iterator[int]:
        """Flat indices that an action waits for."""
        yield from self.needs[index]
        if self.stream_after[index] >= 0:
            yield self.stream_after[index]
        if self.issue_after[index] >= 0:
            yield self.issue_after[index]

    def _events_before(self, event: int, stuck: set[int]) -> Iterator[int]:
        """The stuck events that a stuck event waits for."""
        for index in self.members.get(event, (event,)):
            for before in self._waits(index):
                other = self.event_of[before]
                if other != event and other in stuck:
                    yield other

    def _cycle(self, stuck: set[int]) -> list[int]:
        """A short cycle of stuck events, each waiting for the next."""
        walk = [min(stuck)]
        place = {walk[0]: 0}
        while (event := next(self._events_before(walk[-1], stuck))) not in place:
            place[event] = len(walk)
            walk.append(event)
        walk = walk[place[event] :]
        walk = _shortest_cycle(walk, lambda event: self._events_before(event, stuck))
        # What stands far before something in a list holds it up as well as its neighbour does.
        after = {
            event: [other for other in walk if other != event and self._reason(event, other)]
            for event in walk
        }
        return _shortest_cycle(walk, after.__getitem__)

    def _sentences(self, cycle: list[int]) -> tuple[str, ...]:
        return tuple(
            self._sentence(event, before)
            for event, before in zip(cycle, (*cycle[1:], cycle[0]), strict=True)
        )

    def _reason(self, event: int, other: int) -> tuple[int, int, bool] | None:
        """Actions of the two events of which the first waits for the second, if there are any.

        The third value tells that list order alone makes it wait.
        """
        found = None
        for index in self.members.get(event, (event,)):
            for before in self.members.get(other, (other,)):
                if before in self.needs[index]:
                    return index, before, False
                if (
                    self.worker_of[index] == self.worker_of[before]
                    and before < index
                    and self.queue_of[before] in (self.queue_of[index], _COMPUTE)
                ):
                    found = index, before, True
        return found

    def _sentence(self, event: int, other: int) -> str:
        """Why one event waits for another."""
        reason = self._reason(event, other)
        assert reason is not None, "an event waits only for a reason"
        index, before, by_list = reason
        worker = self.worker_of[index]
        who = "it" if self.worker_of[before] == worker else f"worker {self.worker_of[before]}"
        text = (
            f"worker {worker} cannot {self._verb(index)[0]} {self._name(index)} before "
            f"{who} has {self._verb(before)[1]} {self._name(before)}"
        )
        return f"{text}, which its list has before it" if by_list else text

    def _verb(self, index: int) -> tuple[str, str]:
        kind = self.actions[index].kind
        if kind in MESSAGE_KINDS:
            sends = kind in (Kind.SEND_F, Kind.SEND_B)
            return ("send", "sent") if sends else ("receive", "received")
        return ("start", "ended")

    def _name(self, index: int) -> str:
        """An action, with what the others call the same event."""
        others = [i for i in self.members.get(self.event_of[index], (index,)) if i != index]
        if not others:
            return str(self.actions[index])
        partners = ", ".join(f"worker {self.worker_of[i]}: {self.actions[i]}" for i in others)
        return f"{self.actions[index]} ({partners})"


def _shortest_cycle(events: list[int], before: Callable[[int], Iterable[int]]) -> list[int]:
    """The shortest cycle through any of the first few events, each waiting for the next."""
    found = (_shortest_cycle_through(start, before) for start in sorted(events)[:_MAX_STARTS])
    return min(found, key=len)


def _shortest_cycle_through(start: int, before: Callable[[int], Iterable[int]]) -> list[int]:
    """The shortest cycle through one event that is on a cycle, by breadth-first search."""
    came_from = {start: start}
    queue = deque([start])
    while True:
        event = queue.popleft()
        for other in before(event):
            if other == start:
                path = [event]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if other not in came_from:
                came_from[other] = event
                queue.append(other)
