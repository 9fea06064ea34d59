"""The simulator as a readable event loop: a clock, workers, and queues that run beside them.

It plays a schedule the way the executor would, in the order of time, and is what ``sim.kernel`` is
tested against to the nanosecond.  It is some hundred times slower.
"""

import heapq
from array import array
from collections import deque
from itertools import islice
from typing import TypeAlias

from evener.cost.table import CostTable
from evener.errors import ScheduleError
from evener.ir.action import Kind
from evener.ir.dependencies import resolve
from evener.ir.memory import memory_steps
from evener.ir.rules import RULES, Stream
from evener.ir.schedule import Schedule
from evener.ir.timeline import Timeline

Queue: TypeAlias = tuple[Stream, int, int]
"""A stream of one worker, or of one directed pair of workers (-1 where there is no other)."""

SENDS = (Kind.SEND_F, Kind.SEND_B)
RECEIVES = (Kind.RECV_F, Kind.RECV_B)


def simulate_by_events(schedule: Schedule, costs: CostTable) -> Timeline:
    """What ``sim.simulate`` computes, by playing events in the order of time.

    Raises ScheduleError if the schedule is incomplete or gets stuck.
    """
    play = EventLoop(schedule, costs)
    play.run()
    memory_bytes, peak_bytes = _memory(schedule, costs)
    return Timeline(
        source="predicted",
        schedule=schedule,
        start_ns=array("q", play.start_ns),
        end_ns=array("q", play.end_ns),
        memory_bytes=memory_bytes,
        peak_bytes=peak_bytes,
    )


class EventLoop:
    """One run. Actions are named by their index in flat order."""

    def __init__(self, schedule: Schedule, costs: CostTable) -> None:
        dependencies = resolve(schedule)
        if dependencies.missing:
            texts = [missing.text for missing in dependencies.missing]
            raise ScheduleError("the schedule is incomplete", texts)
        self.costs = costs
        self.actions = dependencies.actions
        self.worker_of = dependencies.worker_of
        self.match = dependencies.match
        groups = (*dependencies.collectives, *dependencies.braids)
        self.group_of = {i: group for group in groups for i in group}
        self.braids = dict(dependencies.braids)
        self.head_of = {second: first for first, second in dependencies.braids}
        numbers: dict[Queue, int] = {}
        self.queue_of = [
            numbers.setdefault(self._queue(index), len(numbers))
            for index in range(len(self.actions))
        ]
        self.waiting: list[deque[int]] = [deque() for _ in numbers]
        self.is_running = [False] * len(numbers)
        self.is_receive = [action.kind in RECEIVES for action in self.actions]
        self.holds_worker = [RULES[action.kind].stream is Stream.COMPUTE for action in self.actions]
        self.num_awaited = [len(needs) for needs in dependencies.needs]
        self.needed_by: list[list[int]] = [[] for _ in self.actions]
        for index, needs in enumerate(dependencies.needs):
            for need in needs:
                self.needed_by[need].append(index)
        self.unissued: list[deque[int]] = [deque() for _ in schedule.workers]
        for index, worker in enumerate(self.worker_of):
            self.unissued[worker].append(index)
        self.num_ended = 0
        self.start_ns = [0] * len(self.actions)
        self.end_ns = [0] * len(self.actions)
        # (time, what ends, -1) or (time, what has ended before, what hears of it now).
        self.events: list[tuple[int, int, int]] = []

    def run(self) -> None:
        for worker in range(len(self.unissued)):
            self._issue(worker, now=0)
        while self.events:
            now, index, hearing = heapq.heappop(self.events)
            if hearing < 0:
                self._end(index, now)
            else:
                self._hear(hearing, now)
        if self.num_ended < len(self.actions):
            stuck = sorted(waiting[0] for waiting in self.waiting if waiting)
            raise ScheduleError(
                "the schedule gets stuck before",
                [f"worker {self.worker_of[i]}: {self.actions[i]}" for i in stuck],
            )

    def _issue(self, worker: int, now: int) -> None:
        """Hand actions to their queues, up to and including the next compute action."""
        unissued, held = self.unissued[worker], False
        while unissued and not held:
            index = unissued.popleft()
            if self.is_receive[index]:
                continue  # started by its SEND
            held = self.holds_worker[index]
            self.waiting[self.queue_of[index]].append(index)
            if index in self.braids:
                self.waiting[self.queue_of[index]].append(unissued.popleft())
            self._start_first(self.queue_of[index], now)

    def _start_first(self, queue: int, now: int) -> None:
        """Start what stands first in a queue, if it can start now."""
        if not self.waiting[queue]:
            return
        index = self.waiting[queue][0]
        group = self.group_of.get(index, (index,))
        if not all(self._is_ready(member) for member in group):
            return
        duration_ns = max(self._duration_ns(member) for member in group)
        for member in group:
            self.is_running[self.queue_of[member]] = True
            self._play(member, now, now + duration_ns)
        if self.actions[index].kind in SENDS:
            source, target = self.worker_of[index], self.worker_of[self.match[index]]
            latency_ns = int(self.costs.latency_ns[source, target])
            self._play(self.match[index], now + latency_ns, now + duration_ns + latency_ns)

    def _is_ready(self, index: int) -> bool:
        queue = self.queue_of[index]
        waiting = self.waiting[queue]
        first = self.head_of.get(index, index)
        is_first = bool(waiting) and waiting[0] == first and not self.is_running[queue]
        return is_first and self.num_awaited[index] == 0

    def _play(self, index: int, start_ns: int, end_ns: int) -> None:
        self.start_ns[index] = start_ns
        self.end_ns[index] = end_ns
        heapq.heappush(self.events, (end_ns, index, -1))

    def _end(self, index: int, now: int) -> None:
        self.num_ended += 1
        if not self.is_receive[index]:
            queue = self.queue_of[index]
            self.waiting[queue].popleft()
            self.is_running[queue] = False
            self._start_first(queue, now)
        for needy in self.needed_by[index]:
            delay_ns = self._delay_ns(index, needy)
            if delay_ns:
                heapq.heappush(self.events, (now + delay_ns, index, needy))
            else:
                self._hear(needy, now)
        if self.holds_worker[index] and index not in self.braids:
            self._issue(self.worker_of[index], now)

    def _hear(self, index: int, now: int) -> None:
        self.num_awaited[index] -= 1
        if not self.is_receive[index]:
            self._start_first(self.queue_of[index], now)

    def _queue(self, index: int) -> Queue:
        stream = RULES[self.actions[index].kind].stream
        is_message = stream is Stream.MESSAGE
        target = self.worker_of[self.match[index]] if is_message else -1
        return stream, self.worker_of[index], target

    def _duration_ns(self, index: int) -> int:
        action, worker = self.actions[index], self.worker_of[index]
        if index in self.braids:
            return self.costs.together_ns(worker, (action, self.actions[self.braids[index]]))
        if index in self.head_of:
            return 0  # that of the braid is told by its first action
        if action.kind in SENDS:
            return self.costs.message_ns(worker, self.worker_of[self.match[index]], action)
        return self.costs.action_ns(worker, action)

    def _delay_ns(self, index: int, needy: int) -> int:
        """Time on the way between the workers of two compute actions, if they differ."""
        source, target = self.worker_of[index], self.worker_of[needy]
        if source == target or self.actions[index].kind in SENDS:
            return 0
        action = self.actions[index]
        return self.costs.message_ns(source, target, action) + int(
            self.costs.latency_ns[source, target]
        )


def _memory(schedule: Schedule, costs: CostTable) -> tuple["array[int]", tuple[int, ...]]:
    """What each worker holds after each of its actions, and the most that it ever holds."""
    held, peaks = array("q"), list(costs.memory.static_bytes)
    steps = iter(memory_steps(schedule))
    for worker, actions in enumerate(schedule.workers):
        now_bytes = costs.memory.static_bytes[worker]
        for step in islice(steps, len(actions)):
            for effects in step:
                now_bytes += sum(map(costs.memory.effect_bytes, effects))
                peaks[worker] = max(peaks[worker], now_bytes)
            held.append(now_bytes)
    return held, tuple(peaks)
