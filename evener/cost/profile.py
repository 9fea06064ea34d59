"""What was measured of a model's layers and of the links: a versioned JSON file.

Nothing here measures: ``profiler`` does, and needs torch; reading a profile does not.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import (
    AliasGenerator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from evener.errors import ProfileError
from evener.ir.versioned_json import JsonFile
from evener.spec.complaints import closest, complaints
from evener.spec.fields import Dtype

_FILE = JsonFile(
    "profile",
    version=1,
    error_type=ProfileError,
    way_out="`evener measure` writes a profile",
)

# Hours and terabytes for one layer and microbatch: sums over any model stay within 64 bits.
Count = Annotated[int, Field(ge=0, le=10**13)]
Rate = Annotated[int, Field(ge=0, le=2**63 - 1)]
Ratio = Annotated[float, Field(ge=0, le=1e6)]
Name = Annotated[str, Field(min_length=1)]


_STEADY = 0.5
"""Spread of a quiet machine with some margin."""


class _Record(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        # An alias equal to the name: messages list the known keys by their aliases.
        alias_generator=AliasGenerator(validation_alias=str),
    )


class LayerCost(_Record):
    """One kind of layer at one microbatch size and sequence length, on one type of device.

    layer: the name of the kind, as in the model's description.
    forward_ns, backward_ns (full), input_grad_ns, weight_grad_ns, recompute_ns: of one microbatch.
    The head is measured with the loss.
    parameter_bytes: of all parameters that the layer uses, in the profile's dtype.
    activation_bytes: saved by the forward for the backward. weight_gradient_bytes: what the
    input gradient leaves behind for the weight gradient.
    input_bytes, output_bytes: of the tensors that enter and leave the layer.
    spread: interquartile range of the repeats over their median, the worst of the times above that
    are at least a hundredth of their sum.
    device_type: where it was measured; the profile's device type if left out.
    """

    layer: Name
    microbatch_size: Annotated[int, Field(ge=1)]
    sequence_length: Annotated[int, Field(ge=1)]
    forward_ns: Count
    backward_ns: Count
    input_grad_ns: Count
    weight_grad_ns: Count
    recompute_ns: Count
    parameter_bytes: Count
    activation_bytes: Count
    weight_gradient_bytes: Count
    input_bytes: Count
    output_bytes: Count
    spread: Ratio = 0.0
    device_type: Name | None = None


class LinkCost(_Record):
    """A directed link between two devices, by name, or between any two of two device types.

    latency_ns: until the first byte arrives. bytes_per_s: bandwidth; 0 means no limit.
    """

    from_device: Name
    to_device: Name
    latency_ns: Count
    bytes_per_s: Rate


class SliceLatency(_Record):
    """How long all layers of the model together take on slices of a sequence, behind their context.

    latency_ns: forward and backward of the slice between two boundaries of equal parts of the
    sequence: row ``first``, then for each ``last`` behind it.
    device_type: where it was measured; the profile's device type if left out.
    """

    microbatch_size: Annotated[int, Field(ge=1)]
    sequence_length: Annotated[int, Field(ge=1)]
    latency_ns: tuple[tuple[Count, ...], ...]
    device_type: Name | None = None

    @model_validator(mode="after")
    def _is_triangle(self) -> "SliceLatency":
        num_parts = len(self.latency_ns)
        wanted = list(range(num_parts, 0, -1))
        if not 1 <= num_parts <= self.sequence_length or list(map(len, self.latency_ns)) != wanted:
            raise ValueError(_no_triangle(num_parts, self.sequence_length))
        return self


class LayerKey(NamedTuple):
    """What a layer's cost is looked up by."""

    layer: str
    device_type: str
    microbatch_size: int
    sequence_length: int

    def __str__(self) -> str:
        return (
            f'layer "{self.layer}" on "{self.device_type}" with microbatch size '
            f"{self.microbatch_size} and sequence length {self.sequence_length}"
        )


class Profile(_Record):
    """Measured costs of one model's layers.

    model, fingerprint: which model was measured; the fingerprint tells changed shapes.
    device_type, host: where, as in the cluster's description, and in words.
    dtype: of parameters and activations, such as "float32".
    step_ns_per_parameter_byte: time of the optimizer step, with clipping if the job clips.
    overhead_ns: what the executor adds to every compute action.
    slice_latencies: where the job cuts slices, what they were measured to take.
    """

    version: Literal[1] = 1
    model: Name
    fingerprint: Name
    device_type: Name
    host: str
    dtype: Dtype
    layers: tuple[LayerCost, ...]
    links: tuple[LinkCost, ...] = ()
    step_ns_per_parameter_byte: Ratio = 0.0
    overhead_ns: Count = 0
    slice_latencies: tuple[SliceLatency, ...] = ()

    @model_validator(mode="after")
    def _each_once(self) -> "Profile":
        doubled = [str(key) for key, count in Counter(self._keys).items() if count > 1]
        if doubled:
            raise ValueError(f"measured more than once: {', '.join(doubled)}")
        return self

    @property
    def _keys(self) -> list[LayerKey]:
        return [
            LayerKey(
                layer=cost.layer,
                device_type=cost.device_type or self.device_type,
                microbatch_size=cost.microbatch_size,
                sequence_length=cost.sequence_length,
            )
            for cost in self.layers
        ]

    @property
    def by_key(self) -> dict[LayerKey, LayerCost]:
        """The layer costs by what they are looked up by."""
        return dict(zip(self._keys, self.layers, strict=True))

    def slice_latency(
        self, device_type: str, *, microbatch_size: int, sequence_length: int
    ) -> SliceLatency | None:
        """What slices were measured to take; None if they were not."""
        wanted = (device_type, microbatch_size, sequence_length)
        for each in self.slice_latencies:
            own_type = each.device_type or self.device_type
            if (own_type, each.microbatch_size, each.sequence_length) == wanted:
                return each
        return None

    @property
    def unsteady(self) -> str | None:
        """A sentence, if times varied so much that predictions from them deserve no trust."""
        worst = max(self.layers, key=lambda cost: cost.spread, default=None)
        if worst is None or worst.spread <= _STEADY:
            return None
        return (
            f"the times of {worst.layer} varied by {worst.spread:.0%} of their median: the machine"
            " was busy; measure again when it is not"
        )

    def costs_of(self, keys: Sequence[LayerKey]) -> list[LayerCost]:
        """One cost per key.

        Raises ProfileError that names every key that was not measured.
        """
        by_key = self.by_key
        missing = [key for key in dict.fromkeys(keys) if key not in by_key]
        if missing:
            raise ProfileError(
                f'the profile of model "{self.model}" is incomplete',
                [_not_measured(key, self) for key in missing],
            )
        return [by_key[key] for key in keys]

    def save(self, path: Path | str) -> None:
        """Write the profile as JSON."""
        Path(path).write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path | str) -> "Profile":
        """Read a profile.

        Raises ProfileError with everything that is wrong: unreadable file, broken JSON, unknown
        or missing keys, negative or NaN values, layers given twice.
        """
        text = _FILE.read(path)
        values = _FILE.parse(text, path)
        try:
            return cls.model_validate_json(text, by_name=True, by_alias=True)
        except ValidationError as error:
            found = complaints(error, cls, values, file=str(path), lines={})
            raise ProfileError(_FILE.header(path), list(map(str, found))) from None


def _no_triangle(num_parts: int, sequence_length: int) -> str:
    return (
        f"{num_parts} rows do not tell the slices of {num_parts} equal parts of {sequence_length} "
        f"tokens; give as many rows as parts, of {num_parts} numbers and one less in each"
    )


def _not_measured(key: LayerKey, profile: Profile) -> str:
    measured = [other for other in profile.by_key if other.layer == key.layer]
    if measured:
        hint = f"; measured is: {', '.join(map(str, measured))}"
    else:
        hint = closest(key.layer, dict.fromkeys(cost.layer for cost in profile.layers))
    return f"{key} was not measured; measure it with `evener measure`{hint}"
