"""Which layers are measured, and what they are fed with."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from evener.errors import EvenerError, ProfileError, UsageError
from evener.modules.keyed_rng import KeyedGenerators
from evener.modules.layers import LayerSource, SpecLayers
from evener.modules.optimizer import autocast_dtype, torch_dtype
from evener.modules.stage import Draw, Stage
from evener.modules.values import Microbatch
from evener.profiler.options import MeasureOptions
from evener.profiler.probe import Arrival, Probe, Subject
from evener.spec.job import JobSpec
from evener.spec.layers import EmbeddingSpec, OpaqueSpec
from evener.spec.model import ModelSpec


@dataclass(frozen=True)
class Bench:
    """A model's layers, one of each kind, and what they are measured with.

    source: of the layers. Those of a user's own module are copied, so that it does not change.
    """

    model: ModelSpec
    job: JobSpec
    source: LayerSource
    options: MeasureOptions

    def __post_init__(self) -> None:
        wrong = [*_do_not_fit(self.model, self.source), *_no_batch(self.model, self.options)]
        last = self.model.layers[-1].config
        if sum(layer.config == last for layer in self.model.layers) > 1:
            wrong.append(_last_is_not_alone(last))
        if wrong:
            raise UsageError(f'the layers of "{self.model.name}" cannot be measured', wrong)

    @cached_property
    def subjects(self) -> Mapping[int, Subject]:
        """One layer of each kind, by position in the model.

        The first of its kind, but not the first layer if there is another: that one computes no
        gradient of its input.  Raises ProfileError that names a layer that cannot be prepared.
        """
        chosen: dict[str, int] = {}
        for index, layer in enumerate(self.model.layers):
            if chosen.get(layer.config, 0) == 0:
                chosen[layer.config] = index
        last = len(self.model.layers) - 1
        subjects = {}
        for kind, index in sorted(chosen.items(), key=lambda item: item[1]):
            with self._naming(index):
                subjects[index] = Subject(
                    kind,
                    index,
                    self._module(index),
                    loss=self.options.loss if index == last else None,
                    autocast=self._autocast,
                    way=self.options.split,
                )
        return subjects

    def probes(self, num_sequences: int) -> list[Probe]:
        """A probe of each subject, for microbatches of so many sequences, in the model's order.

        What enters a layer is what the layers before it make of a microbatch.  Raises ProfileError
        that names the first layer that does not run.
        """
        device = self.options.device
        microbatch = self._microbatch(num_sequences)
        with self._naming(len(self.model.layers) - 1, num_sequences):
            scale = 1.0 / max(1, self.options.loss.count(microbatch))
        draw = Draw(self.job.seed, 0, KeyedGenerators(device))
        value = microbatch[self.options.input_name]
        probes = []
        for index, layer in enumerate(self.model.layers[: max(self.subjects) + 1]):
            with self._naming(index, num_sequences):
                subject = self.subjects.get(index)
                if subject is not None:
                    arrival = Arrival(value, microbatch, num_sequences, scale)
                    probes.append(Probe(subject, arrival, device=device, draw=draw))
                    value = probes[-1].forward_alone()
                elif isinstance(layer.spec, OpaqueSpec):
                    # Described layers keep the shape; only those of a user's module may not.
                    stage = Stage({index: self._module(index)}, split=None, autocast=self._autocast)
                    with torch.no_grad(), stage.computing(device):
                        value = stage(value, microbatch, draw, 0)
        return probes

    @cached_property
    def _autocast(self) -> torch.dtype | None:
        return autocast_dtype(self.job.dtypes)

    def _module(self, index: int) -> nn.Module:
        module = self.source.build([index])[index]
        if not isinstance(self.source, SpecLayers):
            module = copy.deepcopy(module)
        wanted = torch_dtype(self.job.dtypes.parameters)
        for name, parameter in module.named_parameters():
            if parameter.is_floating_point() and parameter.dtype != wanted:
                text = _other_dtype(f"{self.source.names[index]}.{name}", parameter, wanted)
                raise UsageError("the module is not in the job's number formats", [text])
        return module.to(self.options.device).train()

    def _microbatch(self, num_sequences: int) -> Microbatch:
        make = self.options.make_batch
        microbatch = self._random(num_sequences) if make is None else make(num_sequences)
        if self.options.input_name not in microbatch:
            text = _no_input(self.options.input_name, microbatch)
            raise UsageError("the microbatch has nothing for the first layer", [text])
        return {
            name: value.to(self.options.device) if isinstance(value, Tensor) else value
            for name, value in microbatch.items()
        }

    def _random(self, num_sequences: int) -> Microbatch:
        """Random tokens (or vectors, if the model begins without an embedding) and targets."""
        vocabulary = self.model.vocabulary_size
        assert vocabulary is not None, "checked before"
        generator = torch.Generator().manual_seed(self.job.seed)
        shape = (num_sequences, self.job.sequence_length)
        inputs = torch.randint(vocabulary, shape, generator=generator)
        if not isinstance(self.model.layers[0].spec, EmbeddingSpec):
            inputs = torch.randn((*shape, self.model.hidden_size), generator=generator).to(
                torch_dtype(self.job.dtypes.parameters)
            )
        targets = torch.randint(vocabulary, shape, generator=generator)
        return {self.options.input_name: inputs, "targets": targets}

    @contextmanager
    def _naming(self, index: int, num_sequences: int | None = None) -> Iterator[None]:
        """Name the layer in whatever goes wrong with it."""
        try:
            yield
        except EvenerError:
            raise
        except Exception as error:
            text = _does_not_run(self.model, index, num_sequences, error)
            raise ProfileError(
                f'a layer of "{self.model.name}" cannot be measured', [text]
            ) from error


def _do_not_fit(model: ModelSpec, source: LayerSource) -> list[str]:
    described, given = len(model.layers), len(source.names)
    if described == given:
        return []
    return [f"{described} layers are described, but {given} were given; describe those"]


def _no_batch(model: ModelSpec, options: MeasureOptions) -> list[str]:
    if options.make_batch is not None:
        return []
    if any(isinstance(layer.spec, OpaqueSpec) for layer in model.layers):
        return ["the input of a user's own blocks is not known; give make_batch"]
    if model.vocabulary_size is None:
        return ["without a vocabulary there are no tokens to predict; give make_batch and a loss"]
    return []


def _last_is_not_alone(kind: str) -> str:
    return (
        f'the last layer is measured with the loss, but its kind "{kind}" also stands elsewhere; '
        "give the last layer a kind of its own, such as a head"
    )


def _other_dtype(name: str, parameter: Tensor, wanted: torch.dtype) -> str:
    given, job = (str(dtype).removeprefix("torch.") for dtype in (parameter.dtype, wanted))
    return (
        f"parameter {name} is {given}, but the job's dtypes.parameters is {job}; convert the "
        "module with `.to(dtype)` or change the job"
    )


def _no_input(name: str, microbatch: Microbatch) -> str:
    known = ", ".join(map(str, microbatch)) or "nothing"
    return f'input_name is "{name}", but make_batch gave {known}; name one of these'


def _does_not_run(model: ModelSpec, index: int, num_sequences: int | None, error: Exception) -> str:
    layer = model.layers[index]
    size = "" if num_sequences is None else f" with microbatch size {num_sequences}"
    first_line = (str(error).splitlines() or [""])[0]
    return f'layer {index} of kind "{layer.config}"{size}: {type(error).__name__}: {first_line}'
