"""Write the messages out: SEND and RECV between neighbour stages on different workers.

Every message bears the time at which its tensor is ready, on one clock for all workers.  A SEND
stands right after its producer.  A RECV stands where that time falls in the receiver's list; if it
falls inside a compute action, before that action, so that it is posted ahead.  Messages that fall
between the same two compute actions are ordered by (time, number).  So all workers agree on one
order, and since a message never stands before a compute action that ends later than its time, the
result cannot deadlock.  (The method of the zero-bubble runtime, arXiv 2401.10241.)

Side work makes nothing that is sent.  What is posted between the actions around it is posted before
it: side work may be there to fill the wait for that very message.
"""

from collections import defaultdict
from dataclasses import replace

from evener.errors import ScheduleError
from evener.ir.action import Action, Kind
from evener.ir.passes.replay import Durations, Timed, end_times, merge
from evener.ir.schedule import Schedule


def insert_messages(schedule: Schedule, durations_ns: Durations | None = None) -> Schedule:
    """The same schedule with SENDs and RECVs; compute actions keep their order.

    durations_ns: time of (worker, compute action); None means F=1, B=2, I=W=R=1.

    Raises ScheduleError if the schedule has messages already or cannot run to the end.
    """
    if schedule.is_lowered:
        raise ScheduleError(
            f"schedule {schedule.name} has messages already: pass the compute-only schedule"
        )
    ends = end_times(schedule, durations_ns)
    messages = _messages(schedule, ends)
    workers = []
    first = 0
    for worker, actions in enumerate(schedule.workers):
        own_ends = ends[first : first + len(actions)]
        workers.append(merge(actions, own_ends, sorted(messages[worker])))
        first += len(actions)
    return replace(schedule, workers=tuple(workers))


def _messages(schedule: Schedule, ends: list[int]) -> dict[int, list[Timed]]:
    """Per worker, both ends of the messages that the schedule's edges ask for."""
    messages: dict[int, list[Timed]] = defaultdict(list)
    for number, (worker, action) in enumerate(schedule.actions()):
        if action.microbatch is None:
            continue
        if action.kind is Kind.F:
            neighbours, back = schedule.successors[action.stage], schedule.predecessors
            kinds = (Kind.SEND_F, Kind.RECV_F)
        elif action.kind in (Kind.B, Kind.I):
            neighbours, back = schedule.predecessors[action.stage], schedule.successors
            kinds = (Kind.SEND_B, Kind.RECV_B)
        else:
            continue
        for neighbour in neighbours:
            other = schedule.runner.get((neighbour, action.microbatch, action.slice), worker)
            if other == worker:
                continue
            send_peer = neighbour if len(neighbours) > 1 else None
            receive_peer = action.stage if len(back[neighbour]) > 1 else None
            key = (action.microbatch, action.slice)
            send = Action(action.stage, kinds[0], *key, send_peer)
            receive = Action(neighbour, kinds[1], *key, receive_peer)
            messages[worker].append(Timed(ends[number], number, send))
            messages[other].append(Timed(ends[number], number, receive))
    return messages
