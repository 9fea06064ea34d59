"""What a schedule costs whose head is spread over the workers (``ir.passes.spread_head``).

The head is measured as one layer.  A part takes its rows' share of that, and its backward computes
the logits a second time instead of keeping them.  What is left of the head with the last stage is
its normalisation, whose time stays with the parts.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evener.cost.build import cost_table
from evener.cost.profile import LayerCost, Profile
from evener.cost.table import CostTable
from evener.ir.schedule import Schedule
from evener.spec.fields import DTYPE_BYTES
from evener.spec.head_rows import rows_of
from evener.spec.model import ModelSpec
from evener.spec.parameters import num_parameters

_LOSS = "loss"
_STATISTICS = 2
"""Numbers that a part gives for each token: see ``modules.head_part``."""

_NO_TIME = dict.fromkeys(
    ("forward_ns", "backward_ns", "input_grad_ns", "weight_grad_ns", "recompute_ns"), 0
)


def cannot_spread(model: ModelSpec) -> list[str]:
    """Why the head of a model cannot be spread over workers."""
    kinds = [layer.kind for layer in model.layers]
    if kinds[-1] != "head" or kinds.count("head") != 1:
        return [_NO_HEAD]
    return [_TIED] if model.tied_embeddings else []


def without_projection(profile: Profile, model: ModelSpec) -> Profile:
    """The profile with only that of the head which stays with the last stage."""
    norm = num_parameters(model, model.layers[-1].spec) - _matrix(model)
    layers = [
        cost.model_copy(
            update={
                **_NO_TIME,
                "parameter_bytes": norm * DTYPE_BYTES[profile.dtype],
                "activation_bytes": cost.input_bytes,
                "weight_gradient_bytes": 0,
                "output_bytes": cost.input_bytes,
            }
        )
        if cost.layer == model.layers[-1].config
        else cost
        for cost in profile.layers
    ]
    return profile.model_copy(update={"layers": layers})


def spread_cost_table(
    schedule: Schedule,
    *,
    model: ModelSpec,
    layers: Sequence[str],
    partition: Sequence[tuple[int, int]],
    profile: Profile,
    **rest: Any,
) -> CostTable:
    """``cost_table`` of a schedule with the stages of a spread head behind those of ``partition``.

    partition: of the chain. model: what the layers are of.  A schedule without these stages is that
    of the chain, whose last stage has no projection.

    Each worker has room for the logits of its rows twice, beside what ``cost_table`` counts.
    """
    num_parts = max(0, schedule.num_stages - len(partition) - 1)
    names = [f"{model.layers[-1].config} part {part}" for part in range(num_parts)]
    names += [_LOSS] if num_parts else []
    own = [cost for cost in profile.layers if cost.layer == model.layers[-1].config]
    chain = without_projection(profile, model)
    parts = [part for cost in own for part in _parts(cost, model, profile, names)]
    places = range(len(layers), len(layers) + len(names))
    costs = cost_table(
        schedule,
        layers=[*layers, *names],
        partition=[*partition, *((place, place + 1) for place in places)],
        profile=chain.model_copy(update={"layers": [*chain.layers, *parts]}),
        **rest,
    )
    if not num_parts:
        return costs
    tokens = rest["job"].microbatch_size, rest["job"].sequence_length
    logits = max(c.output_bytes for c in own if (c.microbatch_size, c.sequence_length) == tokens)
    room = 2 * -(-logits // num_parts)
    static_bytes = tuple(size + room for size in costs.memory.static_bytes)
    return replace(costs, memory=replace(costs.memory, static_bytes=static_bytes))


def _parts(
    head: LayerCost, model: ModelSpec, profile: Profile, names: Sequence[str]
) -> list[LayerCost]:
    """The costs of the parts and of the loss, for what one entry of the profile was measured at."""
    if not names:
        return []
    *of_rows, loss = names
    width, number_bytes = model.hidden_size, DTYPE_BYTES[profile.dtype]
    num_tokens = head.input_bytes // (width * number_bytes)
    statistics = num_tokens * _STATISTICS * max(DTYPE_BYTES["float32"], number_bytes)
    vocabulary_size = model.vocabulary_size or 0
    parts = [
        head.model_copy(
            update={
                **_NO_TIME,
                "layer": name,
                "forward_ns": head.forward_ns * len(rows) // vocabulary_size,
                "backward_ns": (head.backward_ns + head.forward_ns) * len(rows) // vocabulary_size,
                "parameter_bytes": len(rows) * width * number_bytes,
                "activation_bytes": head.input_bytes + statistics,
                "weight_gradient_bytes": 0,
                "output_bytes": statistics,
            }
        )
        for name, rows in zip(of_rows, rows_of(vocabulary_size, len(of_rows)), strict=True)
    ]
    update = {
        **_NO_TIME,
        "layer": loss,
        "parameter_bytes": 0,
        "activation_bytes": len(of_rows) * statistics,
        "weight_gradient_bytes": 0,
        "input_bytes": statistics,
        "output_bytes": 0,
    }
    return [*parts, head.model_copy(update=update)]


def _matrix(model: ModelSpec) -> int:
    return (model.vocabulary_size or 0) * model.hidden_size


_NO_HEAD = "its last layer is no head, or not the only one; leave spread_head out of the job"
_TIED = (
    "its head has the matrix of the embedding, which one worker holds whole; untie them, or leave "
    "spread_head out of the job"
)
