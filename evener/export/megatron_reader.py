"""Plans from flags of Megatron-LM, in a script or any other text that has them.

Stages are read from the layout string, or dealt evenly where there is none; the order of work is
the one that Megatron-LM has for them (`evener.export.megatron_order`).  The text needs a line
``MEGATRON_RANKS=...``, since data parallelism is what ranks are left over.
"""

import re
import shlex
from pathlib import Path

from evener.errors import PlanError
from evener.export.imported import Imported
from evener.export.megatron_layout import LayoutProblem, parse_layout
from evener.export.megatron_order import group_sizes, megatron_order
from evener.export.parts import StageParts
from evener.ir.schedule import Schedule
from evener.units import too_many_digits

_RANKS = re.compile(r"^\s*MEGATRON_RANKS=(\d+)\s*$", re.MULTILINE)
_PIPELINE = "--pipeline-model-parallel-size"
_LAYOUT = "--pipeline-model-parallel-layout"
_GROUP_SIZE = "--microbatch-group-size-per-virtual-pipeline-stage"
_SIZES = ("--num-layers", "--micro-batch-size", "--global-batch-size", "--seq-length")
_ONE = (
    "--tensor-model-parallel-size",
    "--context-parallel-size",
    "--expert-model-parallel-size",
    "--expert-tensor-parallel-size",
)
_UNREAD = (
    "--decoder-first-pipeline-num-layers",
    "--decoder-last-pipeline-num-layers",
    "--account-for-embedding-in-pipeline-split",
    "--account-for-loss-in-pipeline-split",
    "--hybrid-layer-pattern",
    "--mtp-num-layers",
)


class MegatronReader:
    """Importer of Megatron-LM's flags."""

    def read(self, path: Path | str) -> Imported:
        """Read a plan. Raises PlanError with all that is missing, unknown or contradictory."""
        try:
            text = Path(path).read_text(encoding="utf-8")
            words = shlex.split(text, comments=True)
        except (OSError, ValueError) as error:
            raise PlanError(f"{path} cannot be read", [str(error)]) from None
        flags = _Flags(words, _RANKS.search(text))
        imported = flags.imported()
        if imported is None:
            raise PlanError(f"{path} is not a plan in Megatron-LM's flags", flags.wrong)
        return imported


class _Flags:
    """The flags of a text, and what is wrong with them."""

    def __init__(self, words: list[str], ranks: re.Match[str] | None) -> None:
        self.wrong: list[str] = []
        self.values: dict[str, str] = {}
        for word, following in zip(words, [*words[1:], ""], strict=True):
            if word.startswith("--"):
                flag, _, value = word.partition("=")
                self.values[flag] = value or ("" if following.startswith("--") else following)
        long = too_many_digits(ranks[1]) if ranks else None
        self.num_ranks = int(ranks[1]) if ranks and not long else 0
        if long:
            self.wrong.append(f"MEGATRON_RANKS: {long}")
        if ranks is None:
            self.wrong.append(
                "no line MEGATRON_RANKS=...: data parallelism is what ranks are left over, so say "
                "how many there are"
            )
        for flag in _UNREAD:
            if flag in self.values:
                self.wrong.append(f"{flag} is not read: state the stages by a layout string")
        for flag in _ONE:
            if self._number(flag, default=1) != 1:
                self.wrong.append(f"{flag}: a worker of a plan is one device; set it to 1")

    def imported(self) -> Imported | None:
        """The plan, or None if anything is wrong."""
        num_layers, microbatch, batch, length = (self._number(flag) for flag in _SIZES)
        ranks = self._number(_PIPELINE, default=1)
        parts = self._parts(num_layers, ranks)
        if self.wrong:
            return None
        if self.num_ranks % ranks:
            self.wrong.append(f"{self.num_ranks} ranks are no multiple of {_PIPELINE} {ranks}")
            return None
        replicas = self.num_ranks // ranks
        num_microbatches, rest = divmod(batch, microbatch * replicas)
        if rest:
            self.wrong.append(
                f"--global-batch-size {batch} is no multiple of --micro-batch-size {microbatch} "
                f"times {replicas} replicas"
            )
            return None
        schedule = self._schedule(ranks, num_microbatches, len(parts) // ranks)
        if self.wrong:
            return None
        tied = "--untie-embeddings-and-output-weights" not in self.values
        return Imported(schedule, parts, replicas, microbatch, length, tied)

    def _number(self, flag: str, default: int | None = None) -> int:
        text = self.values.get(flag)
        if text is None and default is not None:
            return default
        if long := too_many_digits(text or ""):
            self.wrong.append(f"{flag}: {long}")
            return 1
        if text is None or not re.fullmatch(r"[1-9][0-9]*", text):
            shown = "is missing" if text is None else f"'{text}'"
            self.wrong.append(f"{flag} {shown}: write a whole number of at least 1")
            return 1
        return int(text)

    def _parts(self, num_layers: int, ranks: int) -> tuple[StageParts, ...]:
        layout = self.values.get(_LAYOUT)
        if layout is None:
            return self._even_parts(num_layers, ranks)
        try:
            parts = parse_layout(layout)
        except LayoutProblem as problem:
            self.wrong.append(f"{_LAYOUT} {layout}: {problem}")
            return ()
        num_blocks = sum(part.num_blocks for part in parts)
        if num_blocks != num_layers:
            self.wrong.append(f"the layout has {num_blocks} blocks, but --num-layers {num_layers}")
        if len(parts) % ranks:
            self.wrong.append(
                f"the layout has {len(parts)} stages, no multiple of {_PIPELINE} {ranks}"
            )
        return parts

    def _even_parts(self, num_layers: int, ranks: int) -> tuple[StageParts, ...]:
        num_stages = ranks * self._number("--num-virtual-stages-per-pipeline-rank", default=1)
        if "--num-layers-per-virtual-pipeline-stage" in self.values:
            each = self._number("--num-layers-per-virtual-pipeline-stage")
            num_stages = max(1, num_layers // each)
        each, rest = divmod(num_layers, num_stages)
        if rest or num_stages % ranks or not each:
            self.wrong.append(
                f"--num-layers {num_layers} cannot be dealt evenly to {num_stages} stages on "
                f"{ranks} ranks: state the stages by a layout string"
            )
        return tuple(
            StageParts(stage == 0, each, stage == num_stages - 1) for stage in range(num_stages)
        )

    def _schedule(self, ranks: int, num_microbatches: int, num_chunks: int) -> Schedule:
        size = self._number(_GROUP_SIZE, default=ranks)
        if num_chunks > 1 and (ranks < 2 or size not in group_sizes(ranks, num_microbatches)):
            self.wrong.append(
                f"{num_microbatches} microbatches in groups of {size}: Megatron-LM interleaves on "
                f"several ranks only, in groups that all have at least {ranks}"
            )
        return megatron_order(ranks, num_microbatches, num_chunks=num_chunks, group_size=size)
