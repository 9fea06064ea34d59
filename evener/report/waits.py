"""What every action waited for: the answer to "why did it not start earlier?"."""

from evener.ir.action import Kind
from evener.ir.dependencies import Dependencies, resolve
from evener.ir.rules import RULES, Stream
from evener.ir.timeline import Timeline

NOTHING = -1
_SENDS = (Kind.SEND_F, Kind.SEND_B)


def waited_for(timeline: Timeline) -> list[int]:
    """Per action in flat order, the flat index of what ended last of all that it had to wait for.

    That is a need from the rules table (for a collective or a braid: of any of its members), the
    compute action before it on its worker, or for a message the one before it on the same link;
    `NOTHING` for an action that waited for none of these. Following the answers from the last
    action to end gives the critical path of the step.
    """
    needed = resolve(timeline.schedule)
    before = _listed_before(needed)
    # Where a braid's actions ran one after the other, the second one waited for the first.
    braids = (pair for pair in needed.braids if len({timeline.start_ns[i] for i in pair}) == 1)
    groups = (*needed.collectives, *braids)
    group_of = {index: group for group in groups for index in group}
    waited = []
    for index in range(len(needed.actions)):
        group = group_of.get(index, (index,))
        candidates = [
            candidate
            for member in group
            for candidate in (*needed.needs[member], *before[member])
            if candidate not in group
        ]
        # Of several that ended together the first one is taken: reports are repeatable.
        waited.append(max(candidates, key=lambda i: timeline.end_ns[i], default=NOTHING))
    return waited


def path_to(index: int, waited: list[int]) -> list[int]:
    """The chain of waits that leads to action ``index``, earliest first, itself included."""
    path = []
    while index != NOTHING:
        path.append(index)
        index = waited[index]
    return path[::-1]


def _listed_before(needed: Dependencies) -> list[tuple[int, ...]]:
    """Per action, what its worker's lists put before it: a compute action, a message."""
    before: list[tuple[int, ...]] = []
    last: dict[object, int] = {}
    for index, (action, worker) in enumerate(zip(needed.actions, needed.worker_of, strict=True)):
        queues: list[object] = [worker]
        if action.kind in _SENDS and needed.match[index] >= 0:
            queues.append((worker, needed.worker_of[needed.match[index]]))
        before.append(tuple(last[queue] for queue in queues if queue in last))
        if RULES[action.kind].stream is Stream.COMPUTE:
            last[worker] = index
        if len(queues) > 1:
            last[queues[1]] = index
    return before
