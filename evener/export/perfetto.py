"""Timelines as a Chrome trace, which ui.perfetto.dev and chrome://tracing open.

Format: "Trace Event Format" (Google, 2016), JSON object form. Every timeline has its own range of
process numbers, so a prediction and a measurement stand one below the other in one file. A process
is a worker; its threads are the compute stream, the messages of each direction and peer, and the
collectives. Arrows lead from a send to its receive, counters show memory.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evener.ir.action import Kind
from evener.ir.dependencies import Dependencies, resolve
from evener.ir.rules import RULES, Stream
from evener.ir.timeline import Timeline

_SENDS = (Kind.SEND_F, Kind.SEND_B)
_ORDER = ("compute", "send", "recv", "collective", "d2h", "h2d")


def write_trace(path: Path | str, *timelines: Timeline) -> Path:
    """Write the timelines as one trace file and return its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(chrome_trace(*timelines), separators=(",", ":")), encoding="utf-8")
    return path


def chrome_trace(*timelines: Timeline) -> dict[str, Any]:
    """The trace as JSON-able data. Times are in microseconds since the first start of each step."""
    events: list[dict[str, Any]] = []
    first_pid = 0
    for number, timeline in enumerate(timelines):
        events += _Process(timeline, first_pid, f"{number}").events()
        first_pid += timeline.schedule.num_workers
    return {"displayTimeUnit": "ns", "traceEvents": events}


class _Process:
    """The events of one timeline, whose worker w has process number first_pid + w."""

    def __init__(self, timeline: Timeline, first_pid: int, name: str) -> None:
        self.timeline = timeline
        self.first_pid = first_pid
        self.name = name
        self.origin_ns = min(timeline.start_ns, default=0)
        self.needed = resolve(timeline.schedule)
        self.thread_of, self.threads = _threads(timeline, self.needed)

    def events(self) -> list[dict[str, Any]]:
        return [*self._names(), *self._slices(), *self._arrows(), *self._memory()]

    def _names(self) -> Iterator[dict[str, Any]]:
        for worker, threads in enumerate(self.threads):
            pid = self.first_pid + worker
            name = f"{self.timeline.source} worker {worker}"
            yield _metadata("process_name", pid, name=name)
            yield _metadata("process_sort_index", pid, sort_index=pid)
            for tid, thread in enumerate(threads):
                yield _metadata("thread_name", pid, tid, name=thread)
                yield _metadata("thread_sort_index", pid, tid, sort_index=tid)

    def _slices(self) -> Iterator[dict[str, Any]]:
        for index, action in enumerate(self.needed.actions):
            start_ns, end_ns = self.timeline.start_ns[index], self.timeline.end_ns[index]
            yield {
                "ph": "X",
                "name": f"PP:{action}",
                "cat": RULES[action.kind].stream.value,
                **self._place(index),
                "ts": self._us(start_ns),
                "dur": (end_ns - start_ns) / 1000,
                "args": {
                    key: value
                    for key, value in action._asdict().items()
                    if value is not None and key != "kind"
                },
            }

    def _arrows(self) -> Iterator[dict[str, Any]]:
        for index, action in enumerate(self.needed.actions):
            receive = self.needed.match[index]
            if action.kind not in _SENDS or receive < 0:
                continue
            shared = {"name": f"PP:{action}", "cat": "message", "id": f"{self.name}.{index}"}
            sent_ns = self.timeline.start_ns[index]
            # Must lie inside the receive, which a run may have posted before the send began.
            arrives_ns = max(sent_ns, self.timeline.start_ns[receive])
            arrives_ns = min(arrives_ns, self.timeline.end_ns[receive])
            yield {"ph": "s", **shared, **self._place(index), "ts": self._us(sent_ns)}
            yield {
                "ph": "f",
                "bp": "e",
                **shared,
                **self._place(receive),
                "ts": self._us(arrives_ns),
            }

    def _memory(self) -> Iterator[dict[str, Any]]:
        for index, held_bytes in enumerate(self.timeline.memory_bytes):
            if RULES[self.needed.actions[index].kind].stream is Stream.COMPUTE:
                yield {
                    "ph": "C",
                    "name": "memory",
                    "pid": self.first_pid + self.needed.worker_of[index],
                    "ts": self._us(self.timeline.end_ns[index]),
                    "args": {"bytes": held_bytes},
                }

    def _place(self, index: int) -> dict[str, int]:
        return {
            "pid": self.first_pid + self.needed.worker_of[index],
            "tid": self.thread_of[index],
        }

    def _us(self, time_ns: int) -> float:
        return (time_ns - self.origin_ns) / 1000


def _threads(timeline: Timeline, needed: Dependencies) -> tuple[list[int], list[list[str]]]:
    """Per action its thread number, and per worker the names of its threads.

    Slices of one thread may not overlap, so messages that do (receives are posted ahead) are dealt
    out to as many threads as it takes.
    """
    num_workers = timeline.schedule.num_workers
    busy_until_ns: list[dict[tuple[str, int], int]] = [{} for _ in range(num_workers)]
    chosen: list[tuple[str, int]] = [("", 0)] * len(needed.actions)
    for index in sorted(range(len(chosen)), key=lambda i: (timeline.start_ns[i], i)):
        used = busy_until_ns[needed.worker_of[index]]
        stream = _stream_name(index, needed)
        lane = 0
        while used.get((stream, lane), timeline.start_ns[index]) > timeline.start_ns[index]:
            lane += 1
        used[stream, lane] = timeline.end_ns[index]
        chosen[index] = (stream, lane)
    ordered = [sorted(used, key=_thread_order) for used in busy_until_ns]
    number = [{thread: tid for tid, thread in enumerate(threads)} for threads in ordered]
    names = [[f"{s} ({lane + 1})" if lane else s for s, lane in threads] for threads in ordered]
    return [number[needed.worker_of[i]][thread] for i, thread in enumerate(chosen)], names


def _stream_name(index: int, needed: Dependencies) -> str:
    kind = needed.actions[index].kind
    stream = RULES[kind].stream
    if stream is not Stream.MESSAGE:
        return stream.value
    direction = "send to" if kind in _SENDS else "recv from"
    partner = needed.match[index]
    return f"{direction} {needed.worker_of[partner]}" if partner >= 0 else direction


def _thread_order(thread: tuple[str, int]) -> tuple[int, str, int]:
    stream, lane = thread
    return _ORDER.index(stream.split()[0]), stream, lane


def _metadata(event: str, pid: int, tid: int = 0, /, **arguments: object) -> dict[str, Any]:
    return {"ph": "M", "name": event, "pid": pid, "tid": tid, "args": arguments}
