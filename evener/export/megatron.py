"""Plans as flags of Megatron-LM.

The file is a shell script to be sourced, with one array of flags and the number of ranks that they
are for, since Megatron-LM takes what ranks are left over for data parallelism::

    source plan.sh
    torchrun --nproc-per-node $MEGATRON_RANKS pretrain_gpt.py "${MEGATRON_ARGS[@]}" ...

Megatron-LM has two orders of work (`evener.export.megatron_order`) and one placement: stage s on
rank s modulo the number of ranks.  Names and limits: ``megatron/training/arguments.py`` and
``megatron/core/pipeline_parallel/schedules.py`` (core 0.16).
"""

import shlex
from collections.abc import Iterator
from pathlib import Path

from evener.export.exporter import Reason, require_supported
from evener.export.megatron_layout import format_layout
from evener.export.megatron_order import group_sizes, megatron_order
from evener.export.parts import parts_reasons, stage_parts, unequal_blocks
from evener.export.reasons import (
    data_parallel_stages,
    freezing,
    rank_lines,
    several_devices,
    side_work,
    slices_and_graphs,
    spread_head,
    unequal_workers,
    updates,
)
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.spec.model import ModelSpec


class Megatron:
    """Exporter to Megatron-LM's flags."""

    target = "Megatron-LM"

    def unsupported(self, plan: Plan, model: ModelSpec | None = None) -> list[Reason]:
        """Everything that Megatron-LM has no flag for."""
        schedule = plan.schedule
        placement = [
            *data_parallel_stages(self.target, schedule),
            *slices_and_graphs(self.target, schedule),
            *unequal_workers(self.target, schedule),
        ]
        placement = placement or list(_other_placement(schedule))
        return [
            *(
                parts_reasons(self.target, plan, model)
                or (unequal_blocks(self.target, model) if model is not None else ())
            ),
            *several_devices(self.target, plan),
            *freezing(self.target, plan),
            *side_work(self.target, plan),
            *spread_head(self.target, plan),
            *updates(self.target, plan),
            *(placement or _other_order(schedule)),
        ]

    def write(self, plan: Plan, path: Path | str, model: ModelSpec | None = None) -> None:
        """Write the flags. Raises ExportError with everything that would be lost."""
        require_supported(self.target, plan, self.unsupported(plan, model))
        assert model is not None, "without one there is a reason"
        flags = "\n".join(f"    {flag}" for flag in _flags(plan, model))
        ranks = "\n".join(f"# {line}" for line in rank_lines(plan))
        text = (
            f"# {plan.model} by {plan.schedule.name}, written by evener\n{ranks}\n"
            f"MEGATRON_RANKS={plan.num_workers}\nMEGATRON_ARGS=(\n{flags}\n)\n"
        )
        Path(path).write_text(text, encoding="utf-8")


def _other_placement(schedule: Schedule) -> Iterator[Reason]:
    for stage, (worker,) in enumerate(schedule.workers_of_stage):
        if worker != stage % schedule.num_workers:
            yield Reason(
                f"stage {stage} is on worker {worker}: Megatron-LM has it on rank "
                f"{stage % schedule.num_workers}, the stage's number modulo the number of ranks, "
                "so that it has no V-shaped placements; plan with a looped one"
            )
            return


def _other_order(schedule: Schedule) -> Iterator[Reason]:
    if _group_size(schedule) is not None:
        return
    num_chunks = schedule.num_stages // schedule.num_workers
    expected = megatron_order(
        schedule.num_workers, schedule.num_microbatches, num_chunks=num_chunks
    )
    name = "1F1B" if num_chunks == 1 else "interleaved 1F1B"
    pairs = zip(schedule.actions(), expected.actions(), strict=False)
    for (worker, action), (_, other) in pairs:
        if action != other:
            yield Reason(
                f"worker {worker} runs {action} where {name} runs {other}: Megatron-LM has 1F1B "
                "and interleaved 1F1B only; plan with one of them"
            )
            return
    yield Reason(
        f"{schedule.num_microbatches} microbatches on {schedule.num_workers} ranks with "
        f"{num_chunks} stages each: Megatron-LM interleaves in groups of at least as many "
        "microbatches as ranks, of more ranks than one; plan with a multiple of the ranks"
    )


def _group_size(schedule: Schedule) -> int | None:
    """The group size with which Megatron-LM runs this schedule; None if there is none."""
    num_ranks, num_microbatches = schedule.num_workers, schedule.num_microbatches
    num_chunks = schedule.num_stages // num_ranks
    if num_chunks == 1:
        sizes = [num_ranks]
    else:
        sizes = group_sizes(num_ranks, num_microbatches) if num_ranks > 1 else []
    for size in sizes:
        order = megatron_order(num_ranks, num_microbatches, num_chunks=num_chunks, group_size=size)
        if order.workers == schedule.workers:
            return size
    return None


def _flags(plan: Plan, model: ModelSpec) -> Iterator[str]:
    schedule, parts = plan.schedule, stage_parts(plan, model)
    yield f"--pipeline-model-parallel-size {schedule.num_workers}"
    if schedule.num_workers > 1:
        yield f"--pipeline-model-parallel-layout {shlex.quote(format_layout(parts))}"
    size = _group_size(schedule)
    if schedule.num_stages > schedule.num_workers != size:
        yield f"--microbatch-group-size-per-virtual-pipeline-stage {size}"
    yield f"--num-layers {sum(part.num_blocks for part in parts)}"
    if not model.tied_embeddings:
        yield "--untie-embeddings-and-output-weights"
    yield f"--micro-batch-size {plan.microbatch_size}"
    yield f"--global-batch-size {plan.job.num_sequences}"
    yield f"--seq-length {plan.sequence_length}"
