"""Plans from settings of torchtitan: a module that Evener wrote, a TOML file of torchtitan up to
0.2, or the JSON that ``debug.save_config_file`` leaves.

All have the same names in ``parallelism`` and ``training``.  A module is read, never run.
"""

import ast
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evener.errors import PlanError
from evener.export.imported import Imported
from evener.export.parts import StageParts
from evener.export.torch_csv_reader import read_schedule
from evener.export.torchtitan import built_placement
from evener.ir.schedule import Schedule

_SECTIONS = ("parallelism", "training")
_ONE = (
    "data_parallel_shard_degree",
    "tensor_parallel_degree",
    "context_parallel_degree",
    "expert_parallel_degree",
)
_HEAD = (["norm", "lm_head"], ["norm", "output"])  # of torchtitan 0.3, and before


class TorchtitanReader:
    """Importer of torchtitan's settings."""

    def read(self, path: Path | str) -> Imported:
        """Read a plan. Raises PlanError or ScheduleError with all that is wrong."""
        path = Path(path)
        try:
            sections = _sections(path)
        except (OSError, ValueError, SyntaxError) as error:
            raise PlanError(f"{path} cannot be read", [str(error)]) from None
        settings = _Settings(sections, path.parent)
        imported = settings.imported()
        if imported is None:
            raise PlanError(f"{path} is not a plan in torchtitan's settings", settings.wrong)
        return imported


def _sections(path: Path) -> Mapping[str, Any]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        found = json.loads(text)
    elif path.suffix == ".toml":
        found = tomllib.loads(text)
    else:
        found = {
            node.targets[0].id.lower(): ast.literal_eval(node.value)
            for node in ast.parse(text).body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
    if not isinstance(found, dict):
        raise ValueError("there are no settings by name")
    return found


class _Settings:
    """The settings of a file, and what is wrong with them."""

    def __init__(self, sections: Mapping[str, Any], folder: Path) -> None:
        self.wrong: list[str] = []
        self.folder = folder
        found = [sections.get(name) for name in _SECTIONS]
        self.parallelism, self.training = (s if isinstance(s, dict) else {} for s in found)
        for name, section in zip(_SECTIONS, found, strict=True):
            if not isinstance(section, dict):
                self.wrong.append(f"there is no section {name}")

    def imported(self) -> Imported | None:
        """The plan, or None if anything is wrong."""
        for key in _ONE:
            # -1 takes what ranks are left over, which the file cannot tell.
            if self.parallelism.get(key, 1) != 1:
                self.wrong.append(
                    f"parallelism.{key} is {self.parallelism[key]}: a plan has one device a worker "
                    "and whole replicas; set it to 1"
                )
        ranks = self._number("pipeline_parallel_degree")
        microbatch = self._number("pipeline_parallel_microbatch_size", default=1)
        replicas = self._number("data_parallel_replicate_degree", default=1)
        local_batch = self._number("local_batch_size", of_training=True)
        length = self._number("seq_len", of_training=True)
        parts = self._parts()
        path = self.parallelism.get("pipeline_parallel_schedule_csv")
        if not isinstance(path, str) or not path:
            self.wrong.append(
                "parallelism.pipeline_parallel_schedule_csv is missing: write the order of the "
                "schedule to a CSV and name it"
            )
        if self.wrong:
            return None
        schedule = read_schedule(self.folder / str(path))
        self._check(schedule, ranks=ranks, parts=parts, sequences=(local_batch, microbatch))
        return None if self.wrong else Imported(schedule, parts, replicas, microbatch, length)

    def _number(self, key: str, *, default: int | None = None, of_training: bool = False) -> int:
        section = self.training if of_training else self.parallelism
        value = section.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            name = f"{'training' if of_training else 'parallelism'}.{key}"
            shown = "is missing" if value is None else f"is {value}"
            self.wrong.append(f"{name} {shown}: write a whole number of at least 1")
            return 1
        return value

    def _parts(self) -> tuple[StageParts, ...]:
        stages = self.parallelism.get("module_fqns_per_model_part")
        if not isinstance(stages, list) or not all(isinstance(each, list) for each in stages):
            self.wrong.append(
                "parallelism.module_fqns_per_model_part is missing: write the modules of each stage"
            )
            return ()
        names = [name for stage in stages for name in stage]
        num_blocks = sum(str(name).startswith("layers.") for name in names)
        blocks = [f"layers.{block}" for block in range(num_blocks)]
        if names not in [["tok_embeddings", *blocks, *head] for head in _HEAD]:
            self.wrong.append(
                "parallelism.module_fqns_per_model_part: write tok_embeddings, layers.0, layers.1 "
                f"and so on, norm, lm_head, each once and in this order, not {' '.join(names)}"
            )
        elif any(stage[-1:] == ["norm"] for stage in stages):
            self.wrong.append(
                "parallelism.module_fqns_per_model_part: norm and lm_head are one layer of a plan; "
                "put them on one stage"
            )
        elif not all(stages):
            self.wrong.append(
                "parallelism.module_fqns_per_model_part: a stage has no modules; give it at least "
                "one layer"
            )
        return tuple(
            StageParts(
                "tok_embeddings" in stage,
                sum(str(name).startswith("layers.") for name in stage),
                "norm" in stage,
            )
            for stage in stages
        )

    def _check(
        self,
        schedule: Schedule,
        *,
        ranks: int,
        parts: tuple[StageParts, ...],
        sequences: tuple[int, int],
    ) -> None:
        """Whether the CSV is of the stages, ranks and microbatches of the settings."""
        local_batch, microbatch = sequences
        for what, in_csv, in_settings in (
            ("stages", schedule.num_stages, len(parts)),
            ("ranks", schedule.num_workers, ranks),
            ("sequences per rank", schedule.num_microbatches * microbatch, local_batch),
        ):
            if in_csv != in_settings:
                self.wrong.append(
                    f"the CSV has {in_csv} {what}, the settings have {in_settings}: make them equal"
                )
        name = self.parallelism.get("pipeline_parallel_schedule", "1F1B")
        placement = [workers[0] for workers in schedule.workers_of_stage]
        if not self.wrong and placement != built_placement(name, len(parts), ranks):
            self.wrong.append(
                f"the CSV runs stages 0 to {len(parts) - 1} on ranks "
                f"{' '.join(map(str, placement))}, but torchtitan builds them for {name} "
                "elsewhere: name a schedule with the same placement"
            )
