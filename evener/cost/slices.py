"""From the costs of whole microbatches to those of their slices of tokens.

Nothing is measured per slice.  What a layer takes for a whole microbatch is shared out: times by
the operations of each slice with the context that it sees (``cost.flops``), bytes by its tokens.
The parts add up to the whole; what the executor adds to an action is added to every slice.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np

from evener.cost.flops import slice_flops
from evener.cost.profile import LayerCost, Profile
from evener.cost.table import CostTable, SliceCosts
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.spec.fields import DTYPE_BYTES
from evener.spec.layers import AttentionSpec, BlockSpec, LayerSpec, Mamba1Spec, MambaSpec
from evener.spec.model import ModelSpec


def cannot_be_sliced(model: ModelSpec) -> list[str]:
    """Per configuration of layers that needs whole sequences, why."""
    reasons = ((name, _why_whole(spec)) for name, spec in model.layer_configs.items())
    return [f"{name}: {reason}" for name, reason in reasons if reason is not None]


def _why_whole(layer: LayerSpec) -> str | None:
    match layer:
        case BlockSpec():
            return _why_whole(layer.mixer)
        case AttentionSpec(causal=False):
            return "its tokens see later ones"
        case MambaSpec() | Mamba1Spec():
            return "its state runs through all tokens of a sequence"
    return None


def layers_of_workers(
    schedule: Schedule, partition: Sequence[tuple[int, int]], layers: Sequence[str]
) -> list[list[str]]:
    """Per worker, its layers.

    partition: per stage, the half-open range of its layers; the stages of a spread head, which
        stand behind these, have none.
    """
    return [
        [
            layers[place]
            for stage in own
            if stage < len(partition)
            for place in range(*partition[stage])
        ]
        for own in schedule.stages_of_worker
    ]


def slice_profiles(
    profile: Profile, model: ModelSpec, slice_tokens: Sequence[int]
) -> tuple[Profile, ...]:
    """Per slice, the profile of its part of every layer, under the key of the whole sequence.

    slice_tokens: tokens of each slice; layers measured at other sequence lengths are left out.
    """
    whole = [
        cost
        for cost in profile.layers
        if cost.sequence_length == sum(slice_tokens) and cost.layer in model.layer_configs
    ]
    shares = {
        name: _Shares.of(model, spec, slice_tokens) for name, spec in model.layer_configs.items()
    }
    parts = [list(_parts(cost, shares[cost.layer])) for cost in whole]
    return tuple(
        profile.model_copy(update={"layers": layers})
        for layers in (zip(*parts, strict=True) if parts else ((),) * len(slice_tokens))
    )


def least_shares(
    model: ModelSpec, layer: LayerSpec, *, num_tokens: int, of_tokens: int
) -> tuple[Fraction, Fraction]:
    """Of forward and input gradient, what a slice of at least ``num_tokens`` has at least.

    Wherever it stands, it does no less than the first slice of its length, which sees no context.
    """
    shares = _Shares.of(model, layer, (num_tokens, of_tokens - num_tokens))
    forward = Fraction(shares.forward[0], sum(shares.forward))
    return forward, min(forward, Fraction(shares.input_grad[0], sum(shares.input_grad)))


@dataclass(frozen=True)
class Slicing:
    """How the microbatches of a model are cut.

    tokens: of each slice. microbatch_size: sequences of a microbatch.
    """

    model: ModelSpec
    tokens: tuple[int, ...]
    microbatch_size: int


def sliced_costs(
    price: Callable[[Profile], CostTable],
    profile: Profile,
    slicing: Slicing,
    *,
    held: Sequence[Sequence[str]],
) -> CostTable:
    """The table of a schedule of slices.

    price: the table of whole microbatches with the costs of a profile.
    held: per worker, the configurations of its layers.

    A worker's room for the backward that runs is that of the largest slice.  Besides, it has room
    for the keys and values of two microbatches: one that still runs forward holds memory for all
    its tokens, one that runs backward their gradients.

    Raises what ``price`` raises.
    """
    whole = price(profile)
    parts = [price(part) for part in slice_profiles(profile, slicing.model, slicing.tokens)]
    tokens = sum(slicing.tokens) * slicing.microbatch_size * DTYPE_BYTES[profile.dtype]
    room_bytes = [
        2 * tokens * sum(_num_keys_and_values(slicing.model.layer_configs[name]) for name in own)
        for own in held
    ]
    static = zip(*(part.memory.static_bytes for part in parts), strict=True)
    memory = replace(
        whole.memory,
        per_slice={
            resource: tuple(zip(*(part.memory.per_stage[resource] for part in parts), strict=True))
            for resource in Resource
            if resource is not Resource.PARAMETERS
        },
        static_bytes=tuple(
            max(bytes_of_parts) + room
            for bytes_of_parts, room in zip(static, room_bytes, strict=True)
        ),
    )
    return replace(
        whole,
        memory=memory,
        slices=SliceCosts(
            time_ns=np.stack([part.time_ns for part in parts], axis=-1),
            forward_bytes=np.stack([part.forward_bytes for part in parts], axis=-1),
            backward_bytes=np.stack([part.backward_bytes for part in parts], axis=-1),
        ),
    )


def shared_bytes(
    profile: Profile, slicing: Slicing, stages: Sequence[Sequence[str]]
) -> tuple[int, ...]:
    """Per stage, what a slice saves and others read too: keys and values of the largest slice.

    stages: the configurations of the layers of each.
    """
    tokens = max(slicing.tokens) * slicing.microbatch_size * DTYPE_BYTES[profile.dtype]
    configs = slicing.model.layer_configs
    return tuple(
        tokens * sum(_num_keys_and_values(configs[name]) for name in own) for own in stages
    )


def _num_keys_and_values(layer: LayerSpec) -> int:
    """Numbers that one token hands on to those behind it."""
    match layer:
        case BlockSpec():
            return _num_keys_and_values(layer.mixer)
        case AttentionSpec(latent=None):
            return 2 * layer.num_kv_heads * layer.head_dim
        case AttentionSpec(latent=latent):
            assert latent is not None
            return layer.num_heads * (layer.head_dim + latent.rope_head_dim + latent.value_head_dim)
    return 0


@dataclass(frozen=True)
class _Shares:
    """Per slice, weights of what it has of a layer: of each time, and of bytes."""

    forward: tuple[int, ...]
    input_grad: tuple[int, ...]
    tokens: tuple[int, ...]

    @classmethod
    def of(cls, model: ModelSpec, layer: LayerSpec, slice_tokens: Sequence[int]) -> "_Shares":
        bounds = pairwise(accumulate(slice_tokens, initial=0))
        flops = [
            slice_flops(model, layer, first_token=first, num_tokens=last - first)
            for first, last in bounds
        ]
        tokens = tuple(slice_tokens)
        if not any(part.matrices + part.products for part in flops):
            return cls(tokens, tokens, tokens)
        # Matrices: one third each of forward, input and weight gradient; products: one third
        # forward, two thirds for the gradient of the input.
        return cls(
            forward=tuple(part.matrices + part.products for part in flops),
            input_grad=tuple(part.matrices + 2 * part.products for part in flops),
            tokens=tokens,
        )


def _parts(cost: LayerCost, shares: _Shares) -> Iterator[LayerCost]:
    weights = {
        "forward_ns": shares.forward,
        "backward_ns": shares.forward,
        "input_grad_ns": shares.input_grad,
        "weight_grad_ns": shares.tokens,
        "recompute_ns": shares.forward,
        "activation_bytes": shares.tokens,
        "weight_gradient_bytes": shares.tokens,
        "input_bytes": shares.tokens,
        "output_bytes": shares.tokens,
    }
    columns = {name: _split(getattr(cost, name), each) for name, each in weights.items()}
    for place in range(len(shares.tokens)):
        yield cost.model_copy(update={name: parts[place] for name, parts in columns.items()})


def _split(total: int, weights: Sequence[int]) -> list[int]:
    """Whole parts in proportion to the weights that add up to the total."""
    ends = accumulate(weights, initial=0)
    return [total * b // sum(weights) - total * a // sum(weights) for a, b in pairwise(ends)]
