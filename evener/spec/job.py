"""The job: what one step of training is, in which number formats, under which limits.

An empty file is a job: every field has a default. The global batch is given either in sequences
or in tokens; where neither is given it is 8 sequences.
"""

import json
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from evener.errors import UsageError
from evener.spec.fields import Bytes, Count, Dtype, Problems, Spec
from evener.spec.side_work import SideWorkSpec, side_work_problems

_DEFAULT_SEQUENCES = 8
_DEFAULT_UPDATES = 16

NonNegative = Annotated[float, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Steps = Annotated[int, Field(ge=0, lt=2**63)]
Beta = Annotated[float, Field(ge=0, lt=1)]


class DtypesSpec(Spec):
    """Number formats. A copy of the parameters in the optimizer's format is kept where the two
    differ (mixed precision)."""

    parameters: Dtype = "float32"
    gradients: Dtype = "float32"
    optimizer: Dtype = "float32"
    activations: Dtype = "float32"


class SgdSpec(Spec):
    """Stochastic gradient descent; keeps one number per parameter where momentum is not 0."""

    kind: Literal["sgd"] = "sgd"
    learning_rate: NonNegative = 0.01
    momentum: Beta = 0.0
    weight_decay: NonNegative = 0.0

    @property
    def states_per_parameter(self) -> int:
        return 1 if self.momentum else 0


class AdamSpec(Spec):
    """Adam (arXiv 1412.6980), or AdamW (arXiv 1711.05101), whose decay is not in the gradient."""

    kind: Literal["adam", "adamw"] = "adamw"
    learning_rate: NonNegative = 1e-3
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    epsilon: NonNegative = 1e-8
    weight_decay: NonNegative = 0.0

    @property
    def states_per_parameter(self) -> int:
        return 2


OptimizerSpec = Annotated[SgdSpec | AdamSpec, Field(discriminator="kind")]


class FreezeSpec(Spec):
    """Freezing of parameters, per microbatch, as far as the critical path of the step needs it.

    max_share: cap on the mean share of a stage's parameters that go without a gradient.
    warmup_steps: steps before anything is frozen. monitor_steps: steps that measure actions with
    nothing frozen, and as many with everything frozen, which train nothing; 0 means that the
    plan's own shares are used. ramp_steps: steps over which the shares grow to what they are to be.
    """

    max_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    warmup_steps: Steps = 0
    monitor_steps: Steps = 5
    ramp_steps: Steps = 10

    @property
    def max_share_ppm(self) -> int:
        """The cap in parts per million."""
        return round(self.max_share * 1_000_000)

    @field_validator("max_share")
    @classmethod
    def _is_one_millionth_or_more(cls, value: float) -> float:
        if round(value * 1_000_000) == 0:
            raise ValueError(_rounds_to_nothing(value))
        return value


class JobSpec(Spec):
    """A training job.

    global_batch_sequences, global_batch_tokens: samples of one step, exactly one of the two.
    microbatch_size: sequences of one microbatch, or "auto" to let the planner choose.
    clip_norm: the global gradient norm is clipped to it; None means no clipping.
    recompute: "full" keeps only the inputs of a stage and repeats its forward before backward;
        "auto" leaves it to the planner for which microbatches of which stages, where it can choose.
    slices: the most slices of tokens that the planner may cut a microbatch into; 1 means none.
    spread_head: whether each worker of a pipeline has a part of the head's rows (SlimPipe).
    offload: whether activations may spend a while in host memory where a worker's is too small.
    freeze: see ``FreezeSpec``; None means that every microbatch trains all parameters.
    side_work: what is to be done in the bubbles, the most urgent first.
    asynchronous: whether a microbatch may be run with weights that lack an update, so that the
        pipeline need not drain at each; ``updates_per_flush`` says how many updates are made until
        it does (16 by default, and no more than steps).
    memory_fraction, memory_cap_bytes: a device may be filled to the smaller of the two.
    dropout_seed: None means ``seed``.
    """

    global_batch_sequences: Count | None = None
    global_batch_tokens: Count | None = None
    sequence_length: Count = 1024
    microbatch_size: Count | Literal["auto"] = "auto"
    dtypes: DtypesSpec = DtypesSpec()
    optimizer: OptimizerSpec = AdamSpec()
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    recompute: Literal["none", "auto", "full"] = "none"
    slices: Count = 1
    spread_head: bool = False
    offload: bool = False
    freeze: FreezeSpec | None = None
    side_work: tuple[SideWorkSpec, ...] = ()
    asynchronous: bool = False
    updates_per_flush: Count | None = None
    memory_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    memory_cap_bytes: Bytes | None = None
    steps: Count = 10
    seed: Seed = 0
    dropout_seed: Seed | None = None

    @property
    def num_sequences(self) -> int:
        """Sequences of one step."""
        if self.global_batch_tokens is not None:
            return self.global_batch_tokens // self.sequence_length
        return self.global_batch_sequences or _DEFAULT_SEQUENCES

    @property
    def num_updates(self) -> int:
        """Updates that an asynchronous schedule makes between two flushes; else 1."""
        if not self.asynchronous:
            return 1
        return self.updates_per_flush or min(self.steps, _DEFAULT_UPDATES)

    @property
    def num_tokens(self) -> int:
        """Tokens of one step."""
        return self.num_sequences * self.sequence_length

    def num_microbatches(self, microbatch_size: int | None = None) -> int:
        """Microbatches of one step, over all workers.

        microbatch_size: sequences in each; the job's own where None.
        Raises UsageError when the global batch is not a whole number of them, or when the job
        leaves the size to the planner and none is given.
        """
        size = self.microbatch_size if microbatch_size is None else microbatch_size
        if size == "auto":
            raise UsageError('microbatch_size is "auto": give the size that the planner chose')
        if size < 1 or self.num_sequences % size:
            raise UsageError(_not_divisible(self.num_sequences, size))
        return self.num_sequences // size

    def memory_limit_bytes(self, device_memory_bytes: int) -> int:
        """How much of a device with that memory the job may use."""
        limit = int(device_memory_bytes * self.memory_fraction)
        return limit if self.memory_cap_bytes is None else min(limit, self.memory_cap_bytes)

    @field_validator("microbatch_size", mode="before")
    @classmethod
    def _is_count_or_auto(cls, value: Any) -> Any:
        if value == "auto" or (
            isinstance(value, int) and not isinstance(value, bool) and value > 0
        ):
            return value
        raise ValueError(f'{json.dumps(value)} should be a whole number greater than 0, or "auto"')

    @field_validator("sequence_length")
    @classmethod
    def _tokens_fill_sequences(cls, value: int, info: ValidationInfo) -> int:
        tokens = info.data.get("global_batch_tokens")
        if tokens is not None and tokens % value:
            raise ValueError(_tokens_not_divisible(tokens, value))
        return value

    @model_validator(mode="after")
    def _side_work_fits_together(self) -> Self:
        problems = list(side_work_problems(self.side_work))
        if problems:
            raise Problems(problems)
        return self

    @model_validator(mode="after")
    def _batch_is_given_once_and_divides(self) -> Self:
        both = self.global_batch_sequences is not None and self.global_batch_tokens is not None
        if both:
            raise Problems([(("global_batch_tokens",), _given_twice())])
        if self.updates_per_flush is not None and not self.asynchronous:
            raise Problems([(("updates_per_flush",), _NOT_ASYNCHRONOUS)])
        if self.num_updates > self.steps:
            text = _more_than_steps(self.num_updates, self.steps)
            raise Problems([(("updates_per_flush",), text)])
        for other in ("freeze", "side_work"):
            if self.asynchronous and getattr(self, other):
                raise Problems([(("asynchronous",), _of_one_update(other))])
        if self.asynchronous and self.recompute == "full":
            raise Problems([(("asynchronous",), _OF_OTHER_WEIGHTS)])
        for other in ("freeze", "side_work", "asynchronous", "offload"):
            if self.spread_head and getattr(self, other):
                raise Problems([(("spread_head",), _of_whole_heads(other))])
        size = self.microbatch_size
        if size != "auto" and self.num_sequences % size:
            raise Problems([(("microbatch_size",), _not_divisible(self.num_sequences, size))])
        return self


def _rounds_to_nothing(share: float) -> str:
    return f"{share} rounds to 0 parts per million; give 0.000001 or more, or leave freeze out"


_NOT_ASYNCHRONOUS = "is given, but asynchronous is false; set asynchronous = true, or leave it out"


def _more_than_steps(updates: int, steps: int) -> str:
    return f"is {updates}, but the job makes {steps} steps; give {steps} at most, or raise steps"


def _of_one_update(other: str) -> str:
    return (
        f"is true, but the job also has {other}, which is planned for one update between two "
        "flushes; take one of the two out of the job"
    )


_OF_OTHER_WEIGHTS = (
    'is true, but the job also has recompute = "full", and a forward cannot be repeated once its '
    "weights have changed; take one of the two out of the job"
)


def _of_whole_heads(other: str) -> str:
    return (
        f"is true, but the job also has {other}, which is planned for a head on one worker; take "
        "one of the two out of the job"
    )


def _given_twice() -> str:
    return "is given besides global_batch_sequences; keep one of the two"


def _tokens_not_divisible(tokens: int, length: int) -> str:
    below, above = tokens // length * length, -(-tokens // length) * length
    near = f"{below} or {above}" if below else str(above)
    return (
        f"sequences of {length} tokens do not divide global_batch_tokens = {tokens}; "
        f"nearest that do: {near}"
    )


def _not_divisible(num_sequences: int, size: int) -> str:
    around = range(max(1, size - 1000), min(num_sequences, size + 1000) + 1)
    sizes = [other for other in around if num_sequences % other == 0] or [1]
    near = sorted(sorted(sizes, key=lambda other: abs(other - size))[:4])
    return (
        f"microbatches of {size} do not divide the global batch of {num_sequences} sequences; "
        f"sizes that do: {', '.join(map(str, near))}"
    )
