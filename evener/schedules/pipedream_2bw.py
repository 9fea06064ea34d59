"""PipeDream-2BW: 1F1B that never drains, with two versions of the weights.

Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021 (arXiv 2006.09503),
section 3.1.
"""

from collections.abc import Iterator
from dataclasses import replace

from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule, Updates
from evener.schedules.entry import ScheduleEntry, StageTimes
from evener.schedules.one_f_one_b import ONE_F_ONE_B, one_f_one_b
from evener.schedules.refusals import refuse, several_chunks
from evener.schedules.shape import ScheduleShape


def pipedream_2bw(shape: ScheduleShape) -> Schedule:
    """1F1B over the microbatches of all updates; a stage steps after the last backward of each.

    Update u is computed, forward and backward on every stage, with the weights of update u - 2,
    so W(t+1) = W(t) - lr grad f(W(t-1)): one step of delay everywhere, for one more copy of the
    weights.  The bubble (p-1)(tF+tB) comes once for all updates; worker w holds at most p - w
    microbatches.

    Raises ScheduleError for more than one chunk per worker, and for several updates of fewer
    microbatches than workers.
    Source: Narayanan et al. 2021, sec. 3.1.
    """
    refuse("pipedream_2bw", shape, _unsupported)
    whole = _of_one_update(shape)
    schedule = replace(one_f_one_b(whole), name="pipedream_2bw")
    if shape.num_updates == 1:
        return schedule
    workers = tuple(
        tuple(_with_steps(actions, shape.num_microbatches)) for actions in schedule.workers
    )
    return replace(schedule, workers=workers, updates=Updates(shape.num_updates, 1, stashed=True))


def _of_one_update(shape: ScheduleShape) -> ScheduleShape:
    """The microbatches of all updates as one."""
    return replace(
        shape, num_microbatches=shape.num_microbatches * shape.num_updates, num_updates=1
    )


def _with_steps(actions: tuple[Action, ...], update_size: int) -> Iterator[Action]:
    for action in actions:
        yield action
        assert action.microbatch is not None, "a pipeline has F and B alone"
        update, index = divmod(action.microbatch, update_size)
        if action.kind is Kind.B and index == update_size - 1:
            yield Action(action.stage, Kind.STEP, update)


def _unsupported(shape: ScheduleShape) -> str | None:
    if shape.num_updates > 1 and shape.num_microbatches < shape.num_workers:
        return (
            f"keeps two versions of the weights, which takes as many microbatches per update as "
            f"workers, but there are {shape.num_microbatches} for {shape.num_workers}; ask for "
            f"{shape.num_workers} or more"
        )
    return several_chunks(shape)


def _peak_in_flight(shape: ScheduleShape) -> tuple[int, ...]:
    return ONE_F_ONE_B.peak_in_flight(_of_one_update(shape))


def _makespan_ns(shape: ScheduleShape, times: StageTimes) -> int | None:
    return ONE_F_ONE_B.makespan_ns(_of_one_update(shape), times)


PIPEDREAM_2BW = ScheduleEntry(
    name="pipedream_2bw",
    cite="Narayanan et al., PipeDream-2BW, ICML 2021, sec. 3.1",
    generator=pipedream_2bw,
    peak_in_flight=_peak_in_flight,
    makespan_ns=_makespan_ns,
    unsupported=_unsupported,
    asynchronous=True,
)
