"""The plan: everything that a run does, as one versioned JSON file."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from evener.errors import PlanError
from evener.ir.action import Kind
from evener.ir.check import violations
from evener.ir.freezing import freezing_violations
from evener.ir.passes import first_updates, lower, replicate, spread_head
from evener.ir.record import FreezingLines, Record, ScheduleLines
from evener.ir.schedule import Schedule, without_side_work
from evener.ir.versioned_json import JsonFile
from evener.spec.complaints import complaints
from evener.spec.fields import Problem, Problems
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec

_FILE = JsonFile("plan", version=1, error_type=PlanError, way_out="`evener plan` writes a plan")

Count = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=0)]
Index = Annotated[int, Field(ge=0)]
Text = Annotated[str, Field(min_length=1)]


class Prediction(Record):
    """What the simulator says of the plan.

    step_ns: of one update, from the first start to the last end; of several updates between two
    flushes their mean, rounded up. lower_bound_ns: no plan of this model, cluster
    and job is faster. peak_bytes: per worker, replicas included. bubble_fraction: idle share of all
    workers' time. status: why the search stopped, a sentence.
    """

    step_ns: Size
    lower_bound_ns: Size
    peak_bytes: tuple[Size, ...]
    bubble_fraction: Annotated[float, Field(ge=0, le=1)]
    status: Text


class Plan(Record):
    """Which layers form which stage, which devices run it, and what everybody does in which order.

    model, model_fingerprint: name, and ``ModelSpec.fingerprint`` of the model that it is for.
    layer_names: of all layers, in order.
    partition: per stage, its layers as [first, one past the last).
    devices: per worker, the devices that act as it; of all replicas, replica by replica.
    replicas: how often the schedule runs side by side, each time with its own microbatches.
    microbatch_size, sequence_length: shape of one microbatch.
    slice_tokens: tokens of each slice, where the schedule cuts microbatches into slices.
    job: the job with nothing left open.
    tied: pairs of stages (s, t), s < t, that share parameters.
    schedule: of one replica, compute actions and offloads only.
    freezing: which shares of a stage's parameters each microbatch leaves out, if the job freezes.
    cycle: the same schedule with side work (X), for steps that follow one another and then begin
        anew; empty where every step is ``schedule``. All side work of the job is in it.
    offload_bytes: per stage, how much of the activations of an offloaded cell goes to host memory
        (whole storages, so a little more may); None means all of them.
    predicted: what the simulator says, if it was asked.
    """

    version: Literal[1] = 1
    model: Text
    model_fingerprint: Text
    layer_names: tuple[Text, ...]
    partition: tuple[tuple[Index, Index], ...]
    devices: tuple[tuple[Text, ...], ...]
    replicas: Count = 1
    microbatch_size: Count
    sequence_length: Count
    slice_tokens: tuple[Count, ...] | None = None
    job: JobSpec
    tied: tuple[tuple[Index, Index], ...] = ()
    schedule: ScheduleLines
    freezing: FreezingLines | None = None
    cycle: tuple[ScheduleLines, ...] = ()
    offload_bytes: tuple[Size, ...] | None = None
    predicted: Prediction | None = None

    @property
    def num_workers(self) -> int:
        """Workers of all replicas."""
        return self.schedule.num_workers * self.replicas

    @property
    def steps(self) -> tuple[Schedule, ...]:
        """Of one replica, the schedules of steps that follow one another and then begin anew."""
        return self.cycle or (self.schedule,)

    @cached_property
    def replicated(self) -> Schedule:
        """The schedule of all replicas, compute actions and offloads only.

        Where the job spreads the head, its stages stand behind those of ``partition``.
        """
        return self._replicated(self.schedule)

    def _replicated(self, schedule: Schedule) -> Schedule:
        whole = spread_head(schedule) if self.job.spread_head else schedule
        return replicate(whole, self.replicas)

    @cached_property
    def _lowered(self) -> dict[tuple[int, int], Schedule]:
        """By step and number of updates, what was asked for so far."""
        return {}

    def lowered(self, step: int = 0, *, num_updates: int | None = None) -> Schedule:
        """What runs in a step: all replicas, with messages, reductions and optimizer steps.

        num_updates: of a schedule of several, how many of the first; all of them by default.
        """
        schedule = self.steps[step % len(self.steps)]
        number = schedule.updates.number if num_updates is None else num_updates
        key = step % len(self.steps), number
        found = self._lowered.get(key)
        if found is None:
            found = self._lowered[key] = lower(
                self._replicated(first_updates(schedule, number)),
                tied=self.tied,
                clip=self.job.clip_norm is not None,
            )
        return found

    def changed(self, **fields: Any) -> "Plan":
        """The same plan but for some fields. Raises what building one does."""
        return Plan(**{**{name: getattr(self, name) for name in Plan.model_fields}, **fields})

    def with_cycle(self, cycle: Sequence[Schedule]) -> "Plan":
        """The same plan with side work in its steps; see ``cycle``."""
        return self.changed(cycle=tuple(cycle))

    def require_model(self, model: ModelSpec) -> None:
        """Raise PlanError unless the plan is for this model, layer by layer."""
        if self.model_fingerprint != model.fingerprint():
            raise PlanError(_other_model(self, model))
        wrong = list(_unlike_model(self, model))
        if wrong:
            raise PlanError(f'the plan does not agree with its model "{model.name}"', wrong)

    def save(self, path: Path | str) -> None:
        """Write the plan as JSON."""
        Path(path).write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path | str) -> "Plan":
        """Read a plan.

        Raises PlanError with all that is wrong: unreadable, not JSON, of another version, unknown
        keys, partition, devices, batch or schedule that do not fit one another.
        """
        text = _FILE.read(path)
        values = _FILE.parse(text, path)
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            found = complaints(error, cls, values, file=str(path), lines={})
            raise PlanError(_FILE.header(path), [str(violation) for violation in found]) from None

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        found = [
            *self._wrong_partition(),
            *self._wrong_devices(),
            *self._wrong_batch(),
            *self._wrong_slices(),
            *self._wrong_schedule(),
            *self._wrong_updates(),
            *self._wrong_cycle(),
            *self._wrong_tied(),
            *self._wrong_offload(),
            *self._wrong_freezing(),
        ]
        if found:
            raise Problems(found)
        return self

    def _wrong_partition(self) -> Iterator[Problem]:
        end = 0
        for stage, (first, last) in enumerate(self.partition):
            if first != end:
                yield ("partition", stage), _not_next(stage, first, end)
            if last <= first:
                yield ("partition", stage), f"stage {stage} has no layers; give it at least one"
            end = last
        if end != len(self.layer_names):
            yield ("partition",), _not_covered(end, len(self.layer_names))
        if len(self.partition) != self.schedule.num_stages:
            yield ("partition",), _other_stages(len(self.partition), self.schedule)

    def _wrong_devices(self) -> Iterator[Problem]:
        if len(self.devices) != self.num_workers:
            yield ("devices",), _other_workers(len(self.devices), self.schedule, self.replicas)
        counts = Counter(device for group in self.devices for device in group)
        for device, count in counts.items():
            if count > 1:
                yield ("devices",), f'"{device}" is given {count} times; a device is one worker\'s'
        for worker, group in enumerate(self.devices):
            if not group:
                yield ("devices", worker), f"worker {worker} has no device; give it one"

    def _wrong_batch(self) -> Iterator[Problem]:
        planned = self.schedule.update_size * self.replicas * self.microbatch_size
        if planned != self.job.num_sequences:
            yield ("schedule",), _other_batch(self, planned)
        job = self.job
        if job.microbatch_size not in ("auto", self.microbatch_size):
            yield ("microbatch_size",), _unlike_job(self.microbatch_size, job.microbatch_size)
        if job.sequence_length != self.sequence_length:
            yield ("sequence_length",), _unlike_job(self.sequence_length, job.sequence_length)

    def _wrong_slices(self) -> Iterator[Problem]:
        num_slices = self.schedule.num_slices
        tokens = self.slice_tokens
        if tokens is None:
            if num_slices > 1:
                yield ("slice_tokens",), _no_tokens(num_slices, self.sequence_length)
        elif num_slices == 1:
            yield ("slice_tokens",), "are given, but the schedule cuts nothing; leave them out"
        else:
            if len(tokens) != num_slices:
                yield (
                    ("slice_tokens",),
                    f"has {len(tokens)} slices, but the schedule has {num_slices}; make them equal",
                )
            if sum(tokens) != self.sequence_length:
                yield ("slice_tokens",), _other_tokens(sum(tokens), self.sequence_length)

    def _wrong_schedule(self) -> Iterator[Problem]:
        if self.schedule.is_lowered:
            yield ("schedule",), "has messages; a plan keeps compute actions only"
        for text in violations(self.schedule):
            yield ("schedule",), text
        if self.predicted is not None and len(self.predicted.peak_bytes) != self.num_workers:
            yield (
                ("predicted", "peak_bytes"),
                f"{len(self.predicted.peak_bytes)} values for {self.num_workers} workers",
            )

    def _wrong_updates(self) -> Iterator[Problem]:
        number, job = self.schedule.updates.number, self.job
        if number == 1:  # as any job may be run
            return
        if not job.asynchronous:
            yield ("schedule",), _not_asynchronous(number)
        elif job.updates_per_flush not in (None, number):
            yield ("schedule",), _other_updates(number, job.updates_per_flush)
        if self.cycle or self.freezing is not None:
            yield ("schedule",), _several_updates(self.schedule)

    def _wrong_cycle(self) -> Iterator[Problem]:
        for step, schedule in enumerate(self.cycle):
            if without_side_work(schedule) != self.schedule:
                yield ("cycle", step), _other_cycle(step)
            for text in violations(schedule):
                yield ("cycle", step), text
        asked = [work.name for work in self.job.side_work]
        if asked:  # a program may also bring side work that no job names
            placed = {str(a.name) for step in self.cycle for _, a in step.actions() if a.name}
            for name in (name for name in asked if name not in placed):
                yield ("cycle",), _no_side_work(name)
            for name in sorted(placed.difference(asked)):
                yield ("cycle",), _side_work_not_asked(name)

    def _wrong_offload(self) -> Iterator[Problem]:
        sizes, num_stages = self.offload_bytes, self.schedule.num_stages
        if sizes is not None and Kind.OFFLOAD not in self.schedule.kinds:
            yield ("offload_bytes",), "are given, but the schedule offloads nothing; leave them out"
        elif sizes is not None and len(sizes) != num_stages:
            yield ("offload_bytes",), f"{len(sizes)} values for {num_stages} stages"

    def _wrong_tied(self) -> Iterator[Problem]:
        for pair in self.tied:
            if not pair[0] < pair[1] < self.schedule.num_stages:
                yield (
                    ("tied",),
                    f"{list(pair)}: name two of {self.schedule.num_stages} stages, lower first",
                )
        if self.tied and self.job.spread_head:
            yield ("tied",), _TIED_AND_SPREAD

    def _wrong_freezing(self) -> Iterator[Problem]:
        asked = self.job.freeze
        if asked is None or self.freezing is None:
            if (asked is None) != (self.freezing is None):
                yield ("freezing",), _FREEZING_NOT_ASKED if asked is None else _NO_FREEZING
            return
        for text in freezing_violations(
            self.freezing,
            num_stages=self.schedule.num_stages,
            num_microbatches=self.schedule.num_microbatches * self.replicas,
            max_share_ppm=asked.max_share_ppm,
        ):
            yield ("freezing",), text


def tied_stages(
    model: ModelSpec, partition: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """The stages of the embedding and of the head, if they share a matrix and are not one stage."""
    if model.tied_layers is None:
        return ()
    low, high = sorted(
        next(stage for stage, (first, end) in enumerate(partition) if first <= layer < end)
        for layer in model.tied_layers
    )
    return ((low, high),) if low < high else ()


def _unlike_model(plan: Plan, model: ModelSpec) -> Iterator[str]:
    """What a plan of the model cannot say."""
    for index, (planned, layer) in enumerate(zip(plan.layer_names, model.layers, strict=False)):
        if planned != layer.name:
            yield f'layer_names[{index}]: is "{planned}", but the model has "{layer.name}"'
            break
    if len(plan.layer_names) != len(model.layers):
        yield f"layer_names: are {len(plan.layer_names)}, but the model has {len(model.layers)}"
        return
    tied = tied_stages(model, plan.partition)
    if plan.tied != tied:
        yield f"tied: is {_pairs(plan.tied)}, but the model's layers make it {_pairs(tied)}"


def _pairs(pairs: Sequence[tuple[int, int]]) -> str:
    return str([list(pair) for pair in pairs])


_TIED_AND_SPREAD = (
    "the job spreads the head, which needs a matrix of its own; take spread_head out of the job, "
    "or plan again with a model whose head is not tied"
)
_NO_FREEZING = "is missing, but the job has freeze; plan again, or take freeze out of the job"
_FREEZING_NOT_ASKED = "is given, but the job has no freeze; add it to the job, or plan again"


def _other_model(plan: Plan, model: ModelSpec) -> str:
    return (
        f'the plan is for model "{plan.model}" ({plan.model_fingerprint[:12]}, '
        f'{len(plan.layer_names)} layers), but this is model "{model.name}" '
        f"({model.fingerprint()[:12]}, {len(model.layers)} layers); make a plan for it with "
        "`evener plan`"
    )


def _not_next(stage: int, first: int, end: int) -> str:
    return f"stage {stage} begins with layer {first}, but layer {end} comes next"


def _not_covered(end: int, num_layers: int) -> str:
    return f"ends before layer {end}, but there are {num_layers} layer_names; cover each once"


def _other_stages(num_stages: int, schedule: Schedule) -> str:
    return f"has {num_stages} stages, but the schedule has {schedule.num_stages}; make them equal"


def _other_workers(num_groups: int, schedule: Schedule, replicas: int) -> str:
    return (
        f"are given for {num_groups} workers, but the schedule has {schedule.num_workers} in "
        f"{replicas} replica{'s' if replicas > 1 else ''}; give devices for "
        f"{schedule.num_workers * replicas}"
    )


def _several_updates(schedule: Schedule) -> str:
    return (
        f"makes {schedule.updates.number} updates between two flushes, but the plan's freezing or "
        "cycle is for one; leave them out, or plan without asynchronous"
    )


def _not_asynchronous(number: int) -> str:
    return (
        f"makes {number} updates between two flushes, but the job is not asynchronous; set "
        "asynchronous in the job, or plan again"
    )


def _other_updates(number: int, wanted: object) -> str:
    return (
        f"makes {number} updates between two flushes, but the job's updates_per_flush is {wanted}; "
        "make them equal"
    )


def _other_batch(plan: Plan, planned: int) -> str:
    return (
        f"runs {plan.schedule.update_size} microbatches of {plan.microbatch_size} in "
        f"{plan.replicas} replica{'s' if plan.replicas > 1 else ''} = {planned} sequences, but the "
        f"job's step has {plan.job.num_sequences}; make them equal"
    )


def _other_cycle(step: int) -> str:
    return (
        f"step {step} differs from the schedule by more than side work; make them equal but for X, "
        "and write X into the cycle only"
    )


def _no_side_work(name: str) -> str:
    return (
        f"has no X:{name}, but the job's side_work has {name}; plan again, or take it out of the "
        "job"
    )


def _side_work_not_asked(name: str) -> str:
    return f"has X:{name}, but the job's side_work has no {name}; add it to the job, or plan again"


def _no_tokens(num_slices: int, sequence_length: int) -> str:
    return (
        f"is left out, but the schedule cuts microbatches into {num_slices} slices; say how many "
        f"of the {sequence_length} tokens each has"
    )


def _other_tokens(planned: int, sequence_length: int) -> str:
    return f"add up to {planned} tokens, but sequences have {sequence_length}; make them equal"


def _unlike_job(value: int, wanted: object) -> str:
    return f"is {value}, but the job says {wanted}; make them equal"
