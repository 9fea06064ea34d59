"""What a schedule takes under given costs."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evener.cost.braid import braid_ns
from evener.cost.network import transfer_ns
from evener.cost.table import CostTable
from evener.errors import UsageError
from evener.interp.program import Program, compile_program
from evener.ir.action import Action
from evener.ir.schedule import MESSAGE_KINDS, Schedule
from evener.ir.timeline import Timeline
from evener.sim import kernel
from evener.sim.kernel import Costs, Int, Result
from evener.sim.layout import RESOURCES, Layout, layout_of
from evener.sim.stats import Bubbles


class Outcome(NamedTuple):
    """What a planner asks of a simulation.

    step_ns: time of the step. peak_bytes: per worker, the most that it holds. bubbles: its idle
    time.
    """

    step_ns: int
    peak_bytes: tuple[int, ...]
    bubbles: Bubbles


def simulate(schedule: Schedule, costs: CostTable) -> Timeline:
    """Predict when every action of one step starts and ends, and what each worker holds.

    schedule: compute-only (then a need of another worker arrives after the time of its message,
    and messages never wait for one another) or lowered.

    Raises ScheduleError if the schedule is incomplete or stuck, UsageError if the costs are those
    of another number of workers or stages or time single actions that the schedule lacks,
    ProfileError if side work has no time.
    """
    layout = _layout_for(compile_program(schedule), costs)
    result = result_for(layout)
    kernel.run(layout.order, layout.classes, price_classes(layout, schedule, costs), result)
    return Timeline(
        source="predicted",
        schedule=schedule,
        start_ns=_as_array(result.start_ns[:-1]),
        end_ns=_as_array(result.end_ns[:-1]),
        memory_bytes=_as_array(result.held_bytes),
        peak_bytes=tuple(result.peak_bytes.tolist()),
    )


def simulate_many(schedule: Schedule, tables: Sequence[CostTable]) -> list[Outcome]:
    """Step time, peak memory and bubbles of one schedule under each of several costs.

    Raises what ``simulate`` raises.
    """
    program = compile_program(schedule)
    result = result_for(layout_of(program))
    outcomes = []
    for costs in tables:
        layout = _layout_for(program, costs)
        step_ns = kernel.run(
            layout.order, layout.classes, price_classes(layout, schedule, costs), result
        )
        busy, warm_up, cool_down = (
            tuple(times.tolist())
            for times in (result.busy_ns, result.warm_up_ns, result.cool_down_ns)
        )
        outcomes.append(
            Outcome(
                step_ns,
                tuple(result.peak_bytes.tolist()),
                Bubbles.of_step(step_ns, busy, warm_up, cool_down),
            )
        )
    return outcomes


def makespans(schedule: Schedule, costs: CostTable, time_ns: Int) -> Int:
    """Step times of one schedule under many tables of action times.

    costs: all else that costs, and the times of side work.
    time_ns: int64[batch, worker, stage, kind], in place of ``costs.time_ns``.
    Returns int64[batch].

    Raises what ``simulate`` raises, and UsageError if slices differ in ``costs``.
    """
    layout = _layout_for(compile_program(schedule), costs)
    if time_ns.shape[1:] != costs.time_ns.shape:
        raise UsageError(_other_times(time_ns, costs))
    if costs.slices is not None:
        raise UsageError(_SLICES_DIFFER)
    prices = price_classes(layout, schedule, costs)
    worker, stage, kind, _ = layout.times
    durations_ns = np.ascontiguousarray(time_ns[:, worker, stage, kind])
    if layout.braids.size:
        _charge_braids(durations_ns, layout, costs, time_ns)
    fixed = layout.is_send | layout.is_receive
    fixed[[number for number, _ in layout.named]] = True
    durations_ns[:, fixed] = prices.duration_ns[fixed]
    steps_ns: Int = kernel.play_many(
        layout.order, layout.classes, prices, durations_ns, result_for(layout)
    )
    return steps_ns


def _layout_for(program: Program, costs: CostTable) -> Layout:
    """Raises UsageError if a single time is of a message, or of an action that is not there."""
    if not costs.single_ns:
        return layout_of(program)
    present = set(program.actions)
    wrong = [_not_there(action) for action in costs.single_ns if action not in present]
    wrong += [_is_message(action) for action in costs.single_ns if action.kind in MESSAGE_KINDS]
    if wrong:
        raise UsageError("the times of single actions do not fit the schedule", wrong)
    return layout_of(program, costs.single_ns)


def price_classes(layout: Layout, schedule: Schedule, costs: CostTable) -> Costs:
    """What each class of actions costs."""
    _require_costs_of(schedule, costs)
    source, target, stage, token_slice, is_activation = layout.wires
    latency_ns = costs.latency_ns[source, target]
    limit = costs.bytes_per_s[source, target]
    latency_ns[0] = limit[0] = 0
    if limit.any():
        size = np.where(is_activation, costs.forward_bytes[stage], costs.backward_bytes[stage])
        if costs.slices is not None:
            cut = token_slice >= 0
            there, back = costs.slices.forward_bytes, costs.slices.backward_bytes
            sizes = np.where(is_activation[:, None], there[stage], back[stage])
            size[cut] = sizes[cut, token_slice[cut]]
        pairs = zip(size.tolist(), limit.tolist(), strict=True)
        passing = [transfer_ns(*pair) for pair in pairs]
        _require_countable(max(passing), schedule)
        passing_ns = np.array(passing, dtype=np.int64)
    else:
        passing_ns = np.zeros_like(latency_ns)
    wire_ns = latency_ns + passing_ns

    worker, stage, kind, token_slice = layout.times
    duration_ns, delay_ns = costs.time_ns[worker, stage, kind], wire_ns[layout.wire]
    if costs.slices is not None:
        cut = token_slice >= 0
        at = worker[cut], stage[cut], kind[cut], token_slice[cut]
        duration_ns[cut] = costs.slices.time_ns[at]
    if layout.braids.size:
        _charge_braids(duration_ns[None], layout, costs, costs.time_ns[None])
    delay_ns[layout.is_receive] = latency_ns[layout.wire[layout.is_receive]]
    delay_ns[layout.is_send] = 0
    duration_ns[layout.is_send] = passing_ns[layout.wire[layout.is_send]]
    costs.require_side_times([actions[-1] for _, actions in layout.named])
    for number, actions in layout.named:
        if not layout.is_braid_head[number]:
            duration_ns[number] = costs.together_ns(int(worker[number]), actions)
    _require_countable(int(duration_ns.max(initial=0)) + int(wire_ns.max(initial=0)), schedule)
    return Costs(
        duration_ns=duration_ns,
        delay_ns=delay_ns,
        wire_ns=wire_ns,
        at_start_bytes=_change_bytes(layout, layout.at_start, costs),
        at_end_bytes=_change_bytes(layout, layout.at_end, costs),
        static_bytes=np.array(costs.memory.static_bytes, dtype=np.int64),
    )


def _charge_braids(durations_ns: Int, layout: Layout, costs: CostTable, time_ns: Int) -> None:
    """Charge the second action of each braid with the time of both, the first with none.

    durations_ns: int64[batch, class], changed in place.
    time_ns: int64[batch, worker, stage, kind], where they come from.
    """
    second, front_stage, front_kind = layout.braids
    worker, stage, kind, _ = layout.times[:, second]
    front, cell = (worker, front_stage, front_kind), (worker, stage, kind)
    waits_ns = np.zeros_like(costs.time_ns) if costs.all_reduce_ns is None else costs.all_reduce_ns
    durations_ns[:, second] = braid_ns(
        time_ns[:, *front], time_ns[:, *cell], waits_ns[front], waits_ns[cell]
    )
    durations_ns[:, layout.is_braid_head] = 0


def _change_bytes(layout: Layout, effects: Int, costs: CostTable) -> Int:
    """By how much an action of each class changes what its worker holds."""
    sizes = np.zeros((len(RESOURCES), costs.num_stages), dtype=np.int64)
    for resource, per_stage in costs.memory.per_stage.items():
        sizes[RESOURCES.index(resource)] = per_stage
    number, resource, stage, token_slice, sign = effects
    size = sizes[resource, stage]
    for name, per_slice in costs.memory.per_slice.items():
        cut = (resource == RESOURCES.index(name)) & (token_slice >= 0)
        size[cut] = np.array(per_slice, dtype=np.int64)[stage[cut], token_slice[cut]]
    change_bytes = np.zeros(len(layout.wire), dtype=np.int64)
    np.add.at(change_bytes, number, sign * size)
    return change_bytes


def _require_costs_of(schedule: Schedule, costs: CostTable) -> None:
    if costs.time_ns.shape[:2] != (schedule.num_workers, schedule.num_stages):
        raise UsageError(_other_size(schedule, costs))
    costs.require_slices(schedule.num_slices)


def _require_countable(longest_ns: int, schedule: Schedule) -> None:
    """Raise UsageError if a step of actions of this length may not be countable in 64 bits."""
    if longest_ns * schedule.num_actions >= 2**63:
        raise UsageError(_too_long(longest_ns, schedule))


def result_for(layout: Layout) -> Result:
    """Room for what the kernel computes."""
    num_actions, num_workers = len(layout.order.flat), layout.num_workers
    num_lanes = max(num_workers, int(layout.classes.lane.max(initial=0)) + 1)
    return Result(
        start_ns=np.empty(num_actions + 1, dtype=np.int64),
        end_ns=np.empty(num_actions + 1, dtype=np.int64),
        held_bytes=np.empty(num_actions, dtype=np.int64),
        peak_bytes=np.empty(num_workers, dtype=np.int64),
        busy_ns=np.empty(num_workers, dtype=np.int64),
        warm_up_ns=np.empty(num_workers, dtype=np.int64),
        cool_down_ns=np.empty(num_workers, dtype=np.int64),
        lane_ns=np.empty(num_lanes, dtype=np.int64),
    )


def _as_array(values: Int) -> "array[int]":
    copy = array("q")
    copy.frombytes(values.data.cast("B"))
    return copy


def _other_size(schedule: Schedule, costs: CostTable) -> str:
    return (
        f"the costs are those of {costs.num_workers} workers and {costs.num_stages} stages, but "
        f"schedule {schedule.name} has {schedule.num_workers} workers and {schedule.num_stages} "
        "stages; build the costs for this schedule"
    )


def _not_there(action: Action) -> str:
    return f"{action} has a time of its own, but is not in the schedule; leave it out of single_ns"


def _is_message(action: Action) -> str:
    return f"{action} takes the time of its link; change the link, not single_ns"


def _too_long(longest_ns: int, schedule: Schedule) -> str:
    return (
        f"an action of {schedule.name} takes {longest_ns / 1e9:.3g} s; {schedule.num_actions} such "
        "actions would be more than 290 years: give shorter times, or faster links"
    )


_SLICES_DIFFER = (
    "the costs have a time for each slice, which a batch of times per stage does not; "
    "simulate each table on its own"
)


def _other_times(time_ns: Int, costs: CostTable) -> str:
    return (
        f"time_ns has shape {time_ns.shape}, but the costs want (batch, worker, stage, kind) = "
        f"(any, {', '.join(map(str, costs.time_ns.shape))})"
    )
