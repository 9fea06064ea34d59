"""Stages in the words of systems that know one kind of model: embedding, blocks, head.

Evener's layers are finer: attention and feed-forward may be layers of their own.  Such systems
hold a block on one stage, so a partition that cuts through one cannot be said there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from evener.errors import PlanError
from evener.export.exporter import Reason
from evener.ir.plan import Plan
from evener.spec.layers import AttentionSpec, BlockSpec
from evener.spec.model import Layer, ModelSpec

_FEEDFORWARD = ("mlp", "moe")


@dataclass(frozen=True)
class StageParts:
    """What one stage holds.

    embedding: the token embedding. num_blocks: transformer blocks, which follow those of the stage
    before. head: the final normalisation and the projection to logits.
    """

    embedding: bool
    num_blocks: int
    head: bool


def parts_reasons(system: str, plan: Plan, model: ModelSpec | None) -> list[Reason]:
    """Why the system has no words for the model or for the partition; empty if it has."""
    if model is None:
        return [
            Reason(
                "a plan names its layers, but not their kinds: give the model, too (`--model FILE`)"
            )
        ]
    plan.require_model(model)
    return list(_foreign_layers(system, model)) or list(_cut_blocks(system, plan, model))


def stage_parts(plan: Plan, model: ModelSpec) -> tuple[StageParts, ...]:
    """The stages of a plan without ``parts_reasons``."""
    starts = _block_starts(model)
    last = len(model.layers) - 1
    return tuple(
        StageParts(
            embedding=start == 0,
            num_blocks=sum(start <= block < end for block in starts),
            head=end == last + 1,
        )
        for start, end in plan.partition
    )


def partition_of(parts: Sequence[StageParts], model: ModelSpec) -> tuple[tuple[int, int], ...]:
    """The partition of a model that the stages stand for.

    Raises PlanError if the model is none of embedding, blocks and head, has another number of
    blocks, or the embedding and the head are not at the two ends.
    """
    reasons = [str(reason) for reason in _foreign_layers("the file", model)]
    starts = _block_starts(model)
    num_blocks = sum(part.num_blocks for part in parts)
    if not reasons and num_blocks != len(starts):
        reasons.append(
            f'the file has {num_blocks} blocks, but model "{model.name}" has {len(starts)}: give '
            "the model that the file is for"
        )
    if reasons:
        raise PlanError(f'the file does not fit model "{model.name}":', reasons)
    ends = [*starts, len(model.layers) - 1]  # before block b comes what ends at ends[b]
    cuts, done = [0], 0
    for part in parts:
        done += part.num_blocks
        cuts.append(len(model.layers) if part.head else ends[done])
    return tuple(pairwise(cuts))


def _block_starts(model: ModelSpec) -> list[int]:
    """Positions of the first layers of the model's blocks."""
    return [
        position
        for position, layer in enumerate(model.layers)
        if layer.kind in ("attention", "block")
    ]


def _foreign_layers(system: str, model: ModelSpec) -> Iterator[Reason]:
    layers = model.layers
    for position, kind in ((0, "embedding"), (len(layers) - 1, "head")):
        if layers[position].kind != kind:
            end = "begins" if kind == "embedding" else "ends"
            yield Reason(
                f"the model {end} with {layers[position].name}: {system} has models from an "
                "embedding to a head only"
            )
    seen = set()
    for before, layer, after in zip(layers, layers[1:-1], layers[2:], strict=False):
        if not _is_in_block(before, layer, after) and layer.config not in seen:
            seen.add(layer.config)
            yield Reason(
                f"layer {layer.name} ({layer.kind}) is not part of a transformer block: {system} "
                "has attention followed by a feed-forward layer only"
            )


def _is_in_block(before: Layer, layer: Layer, after: Layer) -> bool:
    if isinstance(layer.spec, BlockSpec):
        return isinstance(layer.spec.mixer, AttentionSpec)
    if layer.kind == "attention":
        return after.kind in _FEEDFORWARD
    return layer.kind in _FEEDFORWARD and before.kind == "attention"


def unequal_blocks(system: str, model: ModelSpec) -> Iterator[Reason]:
    """For a system that builds all blocks from one set of sizes: what differs between ours."""
    specs: dict[str, dict[str, str]] = {}
    for layer in model.layers[1:-1]:
        role = "feed-forward" if layer.kind in _FEEDFORWARD else layer.kind
        specs.setdefault(role, {}).setdefault(str(layer.spec), layer.config)
    for role, configs in specs.items():
        if len(configs) > 1:
            yield Reason(
                f"the {role} layers {', '.join(configs.values())} differ: {system} builds every "
                "block from the same flags; plan a model of equal blocks, or run this one here"
            )


def _cut_blocks(system: str, plan: Plan, model: ModelSpec) -> Iterator[Reason]:
    for stage, (start, _) in enumerate(plan.partition):
        if model.layers[start].kind in _FEEDFORWARD:
            yield Reason(
                f"stage {stage} begins with {model.layers[start].name}, inside a transformer "
                f"block: {system} holds a block on one stage; move the cut by one layer"
            )
