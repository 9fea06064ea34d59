"""The cases of ``evener verify --all``: every schedule, and every way to spread stages."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from evener.executor.verify import Case
from evener.ir.action import Action, Kind
from evener.ir.passes import insert_offload, offloadable, replicate
from evener.ir.schedule import Schedule
from evener.schedules import SCHEDULES, ScheduleEntry, ScheduleShape, one_f_one_b, split_backward
from evener.spec.job import AdamSpec, SgdSpec

Holders = Sequence[Sequence[int]]
"""Per stage, the workers that take its microbatches in turn; one named twice takes more."""

MICROBATCHES = range(1, 10)

CHUNKS = {1: (1, 2, 3, 4), 2: (1, 2, 3), 3: (1, 2), 4: (1, 2)}
"""Per number of workers, how many stages each may hold in schedules that hold several."""

UPDATES = ((1, 2, 3), (2, 4, 3), (4, 8, 2))
"""(workers, microbatches of an update, updates) of runs of several updates."""

COVERING = ((1, 3), (2, 1), (2, 6), (3, 7), (4, 8))
"""(workers, microbatches) of the small part of the grid."""

SLICING = tuple(entry for entry in SCHEDULES.values() if entry.slicer is not None)
WHOLE_MICROBATCHES = tuple(entry for entry in SCHEDULES.values() if entry.slicer is None)
"""The schedules that cut no microbatches."""

OFFLOADED = (
    ("gpipe", ScheduleShape(2, 4)),
    ("one_f_one_b", ScheduleShape(4, 6)),
    ("interleaved_one_f_one_b", ScheduleShape(2, 4, 2)),
    ("zb_h1", ScheduleShape(4, 6)),
    ("sppo", ScheduleShape(4, 2, num_slices=3)),
)
"""Schedules in which every cell that lives long enough goes to host memory and back."""

SPREAD_HEADS = (
    ("slimpipe", ScheduleShape(4, 2, num_slices=4)),
    ("seq1f1b_zb", ScheduleShape(2, 2, num_slices=3)),
    ("interleaved_one_f_one_b", ScheduleShape(2, 4, 2)),
    ("chimera", ScheduleShape(2, 4)),
)
"""Schedules whose workers have a part of the head each, in the small part of the grid."""

SPREADS: dict[str, Holders] = {
    "2 then 1 then 3": ((0, 1, 1), (2,), (3, 4, 4, 5, 5)),
    "1 then 2": ((0,), (1, 2, 2)),
    "3 then 1": ((0, 1, 1, 2), (3,)),
    "2 then 2": ((0, 1), (2, 2, 2, 3)),
    "V on 2 workers": ((0,), (1,), (1,), (0,)),
    "all on 1 worker": ((0,), (0,), (0,)),
    "unequal numbers of stages": ((0,), (0,), (1,), (0,)),
    "both ends": ((0, 1), (1, 0)),
    "a shared worker": ((0, 1), (1,), (1, 2)),
    "2 pipelines of different depth": ((0, 2), (0, 3), (1, 3)),
}


SLICED: tuple[Holders, ...] = (
    ((0,), (1,)),
    ((0,), (1,), (1,), (0,)),
    ((0,), (1,), (2,), (3,)),
    ((0, 1, 1), (2, 3, 2)),
)
"""Placements on 2 and 4 workers on which microbatches are cut into slices."""

SLICES = (1, 2, 3, 4)


def spread(
    holders: Holders,
    num_microbatches: int,
    *,
    num_slices: int = 1,
    recomputes: bool = False,
    name: str = "spread",
) -> Schedule:
    """A schedule for any placement: actions in the order of 1F1B with equal times.

    With k slices, F of (stage s, microbatch m, slice i) stands at time 2(km + i) + s and its B,
    last slice first, at 2(km + k - 1 - i) + 2(k - 1) + 2S - s.  A need always has an earlier time,
    so ordering every worker by time cannot deadlock.
    recomputes: whether every second slice of all is recomputed.
    """
    num_stages = len(holders)
    timed: list[list[tuple[int, int, int, Action]]] = [
        [] for _ in range(1 + max(worker for group in holders for worker in group))
    ]
    for stage, group in enumerate(holders):
        for cell in range(num_microbatches * num_slices):
            microbatch, index = divmod(cell, num_slices)
            token_slice = index if num_slices > 1 else None
            own = timed[group[microbatch % len(group)]]
            forward = 2 * cell + stage
            backward = 2 * (cell + 2 * (num_slices - 1 - index)) + 2 * num_stages - stage
            own.append((forward, stage, 0, Action(stage, Kind.F, microbatch, token_slice)))
            if recomputes and cell % 2:
                own.append((backward, stage, 1, Action(stage, Kind.R, microbatch, token_slice)))
            own.append((backward, stage, 2, Action(stage, Kind.B, microbatch, token_slice)))
    workers = tuple(tuple(action for *_, action in sorted(own)) for own in timed)
    return Schedule(name, num_stages, num_microbatches, workers, num_slices)


def all_cases() -> Iterator[Case]:
    """Everything that ``verify --all`` trains under."""
    yield from _named_schedules()
    yield from _asynchronous()
    yield from _spreads((6, 9))
    yield from _features()
    for num_slices in SLICES:
        for holders in SLICED:
            yield from _sliced(holders, num_slices)
        for entry in SLICING:
            for num_workers in (2, 4):
                for num_microbatches in (1, 3):
                    for schedule in _of_slices(entry, num_workers, num_microbatches, num_slices):
                        yield Case(schedule, packed=True, window=3)
                        yield Case(schedule)
                        yield Case(schedule, tied=False, spread_head=True)


def covering_cases() -> Iterator[Case]:
    """A few of them that together meet every schedule, spread and feature."""
    for entry in WHOLE_MICROBATCHES:
        for num_workers, num_microbatches in COVERING:
            # Most stages, so that every worker holds several where the schedule can.
            yield from list(_shapes(entry, num_workers, num_microbatches))[-1:]
    yield from _asynchronous()
    yield from _spreads((7,))
    yield from _features()
    for name, shape in SPREAD_HEADS:
        yield Case(SCHEDULES[name](shape), tied=False, spread_head=True, window=3)
    for index, holders in enumerate(SLICED):
        for place, num_slices in enumerate((2, 3)):
            yield list(_sliced(holders, num_slices))[2 * index + place]
    for entry in SLICING:
        for num_workers, num_slices in ((4, 1), (2, 2), (4, 3), (2, 4)):
            for schedule in list(_of_slices(entry, num_workers, 2, num_slices))[-1:]:
                # Without documents and windows attention goes another way.
                is_plain = num_slices == 4
                yield Case(schedule, packed=not is_plain, window=None if is_plain else 3)


def _named_schedules() -> Iterator[Case]:
    for entry in WHOLE_MICROBATCHES:
        for num_workers in CHUNKS:
            for num_microbatches in MICROBATCHES:
                yield from _shapes(entry, num_workers, num_microbatches)


def _asynchronous() -> Iterator[Case]:
    entries = [entry for entry in SCHEDULES.values() if entry.asynchronous]
    for entry in entries:
        for num_workers, num_microbatches, num_updates in UPDATES:
            shape = ScheduleShape(num_workers, num_microbatches, num_updates=num_updates)
            if entry.unsupported(shape) is None:
                yield Case(entry(shape))
                yield Case(entry(shape), clip_norm=None, tied=False)
    pipeline = SCHEDULES["pipedream_2bw"](ScheduleShape(2, 2, num_updates=3))
    yield Case(replicate(pipeline, 2), name="2 asynchronous replicas")


def _shapes(entry: ScheduleEntry, num_workers: int, num_microbatches: int) -> Iterator[Case]:
    for num_chunks in CHUNKS[num_workers]:
        shape = ScheduleShape(num_workers, num_microbatches, num_chunks)
        if entry.unsupported(shape) is None:
            yield Case(entry(shape))


def _of_slices(
    entry: ScheduleEntry, num_workers: int, num_microbatches: int, num_slices: int
) -> Iterator[Schedule]:
    for num_chunks in CHUNKS[num_workers]:
        shape = ScheduleShape(num_workers, num_microbatches, num_chunks, num_slices)
        if entry.unsupported(shape) is None:
            yield entry(shape)


def _spreads(microbatches: Sequence[int]) -> Iterator[Case]:
    for name, holders in SPREADS.items():
        for num_microbatches in microbatches:
            whole = spread(holders, num_microbatches, name=name)
            yield Case(whole)
            yield Case(split_backward(whole), name=f"{name}, I and W")


def _features() -> Iterator[Case]:
    """Each feature turned off or changed alone, on a pipeline and on one with replicas."""
    chain, wide = ((0,), (1,)), ((0, 1, 1), (2,))
    for holders in (chain, wide):
        plain = spread(holders, 5, name="features")
        case = Case(split_backward(plain))
        yield replace(case, tied=False)
        yield replace(case, dropout=0.0)
        yield replace(case, clip_norm=None)
        yield replace(case, ragged=False)
        yield replace(case, optimizer=SgdSpec(momentum=0.9, weight_decay=0.01), name="SGD")
        yield replace(case, optimizer=AdamSpec(weight_decay=0.1), name="AdamW")
        yield replace(case, optimizer=AdamSpec(kind="adam"), name="Adam")
        yield replace(case, split="graph", name="graph split")
        yield Case(spread(holders, 5, recomputes=True, name="recompute"))
        yield Case(split_backward(spread(holders, 5, recomputes=True)), name="recompute, I and W")
    for entry, shape in OFFLOADED:
        whole = SCHEDULES[entry](shape)
        yield Case(insert_offload(whole, offloadable(whole)), name=f"{entry}, offloaded")
    for way in ("store", "graph"):
        halved = split_backward(spread(chain, 5, recomputes=True))
        moved = insert_offload(halved, offloadable(halved))
        yield Case(moved, split=way, name=f"recompute, I and W, offloaded, {way} split")
    yield Case(replicate(one_f_one_b(ScheduleShape(2, 3)), 2), name="2 replicas")


def _sliced(holders: Holders, num_slices: int) -> Iterator[Case]:
    """Slices of unequal length, with everything that attention over slices must get right."""
    whole = spread(holders, 3, num_slices=num_slices, name="slices")
    halves = split_backward(whole)
    recomputed = spread(holders, 3, num_slices=num_slices, recomputes=True, name="slices, R")
    yield Case(halves, packed=True, window=3)
    yield Case(whole, packed=True)
    yield Case(whole, window=2, tied=False)
    yield Case(recomputed, packed=True, window=3)
    yield Case(split_backward(recomputed), window=4)
    yield Case(halves, split="graph", packed=True)
    yield Case(halves, dropout=0.0, clip_norm=None)
    yield Case(halves, ragged=False)
