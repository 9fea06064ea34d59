"""What a report says besides what it reads from its timelines."""

from dataclasses import dataclass

from evener.ir.plan import Plan


@dataclass(frozen=True)
class Summary:
    """What the timelines themselves do not know. Everything but the title may be left out.

    title: first line of the report. model, status: the model's name and the planner's sentence.
    lower_bound_ns: no plan of this job can have a shorter step.
    tokens_per_step: valid tokens of one step. model_flops_per_step, peak_flops_per_s: operations
        that the model needs per step, and what all devices together could do; they make the MFU.
    cap_bytes, worker_names: one per worker. stage_names: one per stage, such as "layers 0-3".
    facts: further names and values for the last table, such as the host or the dtype.
    """

    title: str
    model: str = ""
    status: str = ""
    lower_bound_ns: int | None = None
    tokens_per_step: int | None = None
    model_flops_per_step: int | None = None
    peak_flops_per_s: int | None = None
    cap_bytes: tuple[int, ...] = ()
    worker_names: tuple[str, ...] = ()
    stage_names: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


def summary_of_plan(plan: Plan, title: str | None = None) -> Summary:
    """What a plan tells of itself; add the rest, such as the MFU's, with ``dataclasses.replace``.

    title: the model and the schedule if left out. Tokens are those of a full step.
    """
    predicted = plan.predicted
    return Summary(
        title=title or f"{plan.model}, {plan.schedule.name}",
        model=plan.model,
        status=predicted.status if predicted else "",
        lower_bound_ns=predicted.lower_bound_ns if predicted else None,
        tokens_per_step=plan.job.num_sequences * plan.sequence_length,
        worker_names=tuple(", ".join(devices) for devices in plan.devices),
        stage_names=stage_names(plan),
        facts=(
            ("microbatch", f"{plan.microbatch_size} x {plan.sequence_length} tokens"),
            *_slices(plan),
            ("replicas", str(plan.replicas)),
        ),
    )


def stage_names(plan: Plan) -> tuple[str, ...]:
    """What every stage is, those of a spread head included."""
    chain = [_layers(plan, first, last) for first, last in plan.partition]
    if not plan.job.spread_head:
        return tuple(chain)
    num_parts = plan.schedule.num_workers
    parts = [f"part {part} of {num_parts} of the head's rows" for part in range(num_parts)]
    return (*chain, *parts, "loss")


def _slices(plan: Plan) -> tuple[tuple[str, str], ...]:
    if plan.slice_tokens is None:
        return ()
    return (("tokens of the slices", " ".join(map(str, plan.slice_tokens))),)


def _layers(plan: Plan, first: int, end: int) -> str:
    names = plan.layer_names[first:end]
    if len(names) == 1:
        return names[0]
    return f"{len(names)} layers, {names[0]} to {names[-1]}"
