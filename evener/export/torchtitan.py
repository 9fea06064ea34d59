"""Plans as settings of torchtitan.

Two files: a Python module with the settings and a function that puts them into a configuration,
and next to it the schedule as torch's CSV::

    from plan import with_plan

    def my_run() -> Trainer.Config:
        return with_plan(llama3_8b())

Names and limits are those of torchtitan 0.3: ``torchtitan/config/configs.py`` and
``torchtitan/distributed/pipeline_parallel.py``.  Stages are built where the *named* schedule has
them and run as the CSV says, so the two must agree: stage s on rank s modulo the number of ranks,
or a V of two stages per rank.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from evener.export.exporter import Reason, require_supported
from evener.export.parts import StageParts, parts_reasons, stage_parts
from evener.export.reasons import rank_lines, several_devices, unequal_workers
from evener.export.torch_csv import schedule_reasons, write_rows
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.spec.model import ModelSpec

_MODULE = '''\
"""{title}, for torchtitan 0.3; written by evener.

{ranks}
"""

from pathlib import Path

PARALLELISM = {parallelism}

TRAINING = {training}


def with_plan(config):
    """Put the plan into a Trainer.Config and return it."""
    for section, settings in ((config.parallelism, PARALLELISM), (config.training, TRAINING)):
        for name, value in settings.items():
            setattr(section, name, value)
    schedule = Path(__file__).with_name(PARALLELISM["pipeline_parallel_schedule_csv"])
    config.parallelism.pipeline_parallel_schedule_csv = str(schedule)
    return config
'''


class Torchtitan:
    """Exporter to torchtitan's settings and schedule CSV."""

    target = "torchtitan"

    def unsupported(self, plan: Plan, model: ModelSpec | None = None) -> list[Reason]:
        """Everything that torchtitan would build or run otherwise."""
        in_rows = schedule_reasons(plan)
        counts = list(unequal_workers(self.target, plan.schedule))
        return [
            *parts_reasons(self.target, plan, model),
            *several_devices(self.target, plan),
            *in_rows,
            *counts,
            *([] if in_rows or counts else _other_placement(plan.schedule)),
        ]

    def write(self, plan: Plan, path: Path | str, model: ModelSpec | None = None) -> None:
        """Write the settings to ``path`` and ``<name>_schedule.csv`` next to it.

        Raises ExportError with everything that would be lost.
        """
        require_supported(self.target, plan, self.unsupported(plan, model))
        assert model is not None, "without one there is a reason"
        path = Path(path)
        schedule_path = path.with_name(f"{path.stem}_schedule.csv")
        write_rows(plan.schedule, schedule_path, messages=False)
        local_batch = plan.schedule.num_microbatches * plan.microbatch_size
        parallelism = {
            "pipeline_parallel_degree": plan.schedule.num_workers,
            "pipeline_parallel_schedule": named_schedule(plan.schedule),
            "pipeline_parallel_schedule_csv": schedule_path.name,
            "pipeline_parallel_microbatch_size": plan.microbatch_size,
            "module_fqns_per_model_part": module_names(stage_parts(plan, model)),
            "data_parallel_replicate_degree": plan.replicas,
            "data_parallel_shard_degree": 1,
        }
        training = {
            "local_batch_size": local_batch,
            "global_batch_size": local_batch * plan.replicas,
            "seq_len": plan.sequence_length,
        }
        text = _MODULE.format(
            title=f"{plan.model} by {plan.schedule.name}",
            ranks="\n".join(rank_lines(plan)),
            parallelism=_literal(parallelism),
            training=_literal(training),
        )
        path.write_text(text, encoding="utf-8")


def named_schedule(schedule: Schedule) -> str | None:
    """A schedule of torch's that has the same placement; None if there is none."""
    num_stages, num_ranks = schedule.num_stages, schedule.num_workers
    placement = [workers[0] for workers in schedule.workers_of_stage]
    for name in ("1F1B" if num_stages == num_ranks else "Interleaved1F1B", "ZBVZeroBubble"):
        if placement == built_placement(name, num_stages, num_ranks):
            return name
    return None


def built_placement(name: str, num_stages: int, num_ranks: int) -> list[int] | None:
    """On which rank torchtitan builds each stage; None for numbers that it refuses."""
    if num_stages % num_ranks:
        return None
    ranks = list(range(num_ranks))
    if name in ("ZBVZeroBubble", "DualPipeV"):
        return ranks + ranks[::-1] if num_stages == 2 * num_ranks else None
    return ranks * (num_stages // num_ranks)


def module_names(parts: tuple[StageParts, ...]) -> list[list[str]]:
    """Names of the modules of each stage, as torchtitan's decoder models have them."""
    names, first = [], 0
    for part in parts:
        blocks = [f"layers.{block}" for block in range(first, first + part.num_blocks)]
        first += part.num_blocks
        names.append(["tok_embeddings"] * part.embedding + blocks + ["norm", "lm_head"] * part.head)
    return names


def _literal(settings: Mapping[str, object]) -> str:
    """A dictionary in Python's notation, one setting and one stage a line."""
    lines = ["{"]
    for key, value in settings.items():
        if isinstance(value, list):
            stages = (f"        {json.dumps(stage)}," for stage in value)
            lines += [f'    "{key}": [', *stages, "    ],"]
        else:
            lines.append(f'    "{key}": {json.dumps(value)},')
    return "\n".join((*lines, "}"))


def _other_placement(schedule: Schedule) -> Iterator[Reason]:
    if named_schedule(schedule) is None:
        placement = " ".join(str(workers[0]) for workers in schedule.workers_of_stage)
        yield Reason(
            f"stages 0 to {schedule.num_stages - 1} are on workers {placement}: torchtitan builds "
            "stage s on rank s modulo the number of ranks, or a V of two stages per rank; plan "
            "with one of these placements"
        )
