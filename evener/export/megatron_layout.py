"""Megatron-LM's layout string: which parts of the model form which stage.

``Et*3|(tt|)*2,L`` is embedding and three blocks, twice two blocks, and the head with the loss.
``|`` separates stages, ``x*3`` repeats one letter, ``(...)*3`` repeats a group, commas mean
nothing.  Stage ``c p + r`` is chunk c of rank r.

Grammar: ``PipelineParallelLayerLayout.parse_str_to_list`` in
``megatron/core/transformer/pipeline_parallel_layer_layout.py`` (core 0.16).
"""

import re
from collections.abc import Sequence
from itertools import groupby

from evener.export.parts import StageParts
from evener.units import too_many_digits

_ITEM = re.compile(r"(?:\((?P<group>[^()]*)\)|(?P<letter>[EtmL|]))(?:\*(?P<times>\d+))?", re.ASCII)
_MAX_LETTERS = 100_000


class LayoutProblem(ValueError):
    """What is wrong with a layout string."""


def format_layout(parts: Sequence[StageParts]) -> str:
    """The layout of stages, repeats of three and more written short."""
    pieces = []
    for stage, equal in groupby(map(_letters, parts)):
        count = len(list(equal))
        pieces.append(f"({stage}|)*{count}" if count > 2 else f"{stage}|" * count)
    return "".join(pieces).removesuffix("|")


def parse_layout(layout: str) -> tuple[StageParts, ...]:
    """The stages of a layout.

    Raises LayoutProblem for what is not a layout, for stages that are empty, and for what only
    Megatron-LM has (MTP layers).
    """
    stages = _unroll(layout.replace(",", "")).split("|")
    letters = "".join(stages)
    if not re.fullmatch("Et*L", letters):
        raise LayoutProblem(_not_one_model(letters))
    for number, stage in enumerate(stages):
        if not stage:
            raise LayoutProblem(
                f"stage {number} is empty: a stage of a plan has at least one layer; give it one"
            )
    return tuple(StageParts("E" in stage, stage.count("t"), "L" in stage) for stage in stages)


def _letters(part: StageParts) -> str:
    blocks = "t" * part.num_blocks if part.num_blocks < 3 else f"t*{part.num_blocks}"
    return "E" * part.embedding + blocks + "L" * part.head


def _unroll(layout: str) -> str:
    letters = ""
    position = 0
    while position < len(layout):
        item = _ITEM.match(layout, position)
        if item is None or (item["group"] is not None and item["times"] is None):
            raise LayoutProblem(
                f"'{layout[position:]}' is not a layout: write E, t and L, | between stages, "
                "t*3 for ttt and (tt|)*3 for tt|tt|tt|"
            )
        once = item["letter"] if item["group"] is None else _unroll(item["group"])
        if long := too_many_digits(item[0]):
            raise LayoutProblem(long)
        times = int(item["times"] or 1)
        if len(letters) + len(once) * times > _MAX_LETTERS:
            raise LayoutProblem(f"more than {_MAX_LETTERS} letters: no model has as many layers")
        letters += once * times
        position = item.end()
    return letters


def _not_one_model(letters: str) -> str:
    if "m" in letters:
        return "m: layers for multi-token prediction are not part of a plan; leave them out"
    return (
        f"it begins with '{letters[:1]}', ends with '{letters[-1:]}' and has "
        f"{letters.count('E')} E and {letters.count('L')} L: a model begins with its only E and "
        "ends with its only L"
    )
