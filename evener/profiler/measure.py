"""From a model and a job to a profile of its layers."""

import os
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from evener.cost.profile import LayerCost, Profile
from evener.errors import UsageError
from evener.modules.keyed_rng import KeyedGenerators
from evener.modules.layers import LayerSource, layer_source
from evener.modules.optimizer import autocast_dtype, optimizer_factory, torch_dtype
from evener.profiler.bench import Bench
from evener.profiler.options import MeasureOptions
from evener.profiler.peers import Alone, Peers
from evener.profiler.probe import Probe
from evener.profiler.rounds import TIMES, TimedProbe, run_rounds
from evener.profiler.timing import Stopwatch, median_ns, one_thread, relative_spread, stopwatch
from evener.spec.fields import DTYPE_BYTES
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec

_OPTIMIZER_STEPS = 5

# Times that are a smaller part of a layer's are not asked how steady they are.
_SMALL_PART = 0.01


def measure_model(
    model: ModelSpec,
    job: JobSpec,
    microbatch_sizes: Sequence[int],
    *,
    source: LayerSource | nn.Module | Sequence[nn.Module] | None = None,
    options: MeasureOptions | None = None,
    peers: Peers | None = None,
) -> Profile:
    """Time one layer of each kind of ``model`` and count the bytes that it keeps.

    job: its sequence length, number formats, optimizer, recomputation and seed are used.
    microbatch_sizes: in sequences; each is measured.
    source: of the layers, or the blocks themselves; needed if the description does not say what is
        in them.
    peers: workers that call this at the same time and go round by round together; all get the same
        profile, whose times are medians over all rounds and over all workers of a device type.

    Links are not measured here; see ``measure_links``.

    Raises UsageError if the arguments do not belong together or torch cannot train in the job's
    number formats, and ProfileError that names a layer that does not run.
    """
    options = MeasureOptions() if options is None else options
    bench = bench_of(model, job, microbatch_sizes, source=source, options=options)
    with one_thread(options.device), KeyedGenerators(options.device).preserved():
        findings = _measure(bench, microbatch_sizes, Alone() if peers is None else peers)
    of_type: dict[str, list[_Findings]] = {}
    for each in findings:
        of_type.setdefault(each.device_type, []).append(each)
    first = findings[0]
    return Profile(
        model=model.name,
        fingerprint=model.fingerprint(),
        device_type=first.device_type,
        host=first.host,
        dtype=job.dtypes.activations,
        layers=tuple(cost for alike in of_type.values() for cost in _layer_costs(alike, first)),
        step_ns_per_parameter_byte=median(
            each.step_ns_per_parameter_byte for each in of_type[first.device_type]
        ),
    )


def bench_of(
    model: ModelSpec,
    job: JobSpec,
    microbatch_sizes: Sequence[int],
    *,
    source: LayerSource | nn.Module | Sequence[nn.Module] | None,
    options: MeasureOptions,
) -> Bench:
    """What ``measure_model`` will measure; builds no layer yet.

    Raises UsageError as ``measure_model`` does.
    """
    _require_sizes(microbatch_sizes)
    autocast_dtype(job.dtypes)  # refuses what torch cannot train in
    layers = layer_source(
        model if source is None else source,
        dtype=torch_dtype(job.dtypes.parameters),
        device=options.device,
        seed=job.seed,
    )
    return Bench(model, job, layers, options)


@dataclass(frozen=True)
class _Findings:
    """What one worker measured.

    facts: per probe all of its ``LayerCost`` but the times. samples: its times, by their names.
    """

    device_type: str
    host: str
    facts: list[dict[str, Any]]
    samples: list[dict[str, list[int]]]
    step_ns_per_parameter_byte: float


def _measure(bench: Bench, microbatch_sizes: Sequence[int], peers: Peers) -> list[_Findings]:
    options, job = bench.options, bench.job
    watch = stopwatch(options.device)
    groups = [
        [TimedProbe(probe, watch) for probe in bench.probes(size)] for size in microbatch_sizes
    ]
    run_rounds(groups, options, peers, recomputes=job.recompute == "full")
    timed = list(chain.from_iterable(groups))
    return peers.gather(
        _Findings(
            device_type=options.device_type,
            host=_host(options.device),
            facts=[_facts(each.probe, job) for each in timed],
            samples=[each.samples for each in timed],
            step_ns_per_parameter_byte=_step_ns_per_parameter_byte(bench, watch),
        )
    )


def _facts(probe: Probe, job: JobSpec) -> dict[str, Any]:
    subject = probe.subject
    return {
        "layer": subject.kind,
        "microbatch_size": probe.arrival.num_sequences,
        "sequence_length": job.sequence_length,
        "parameter_bytes": subject.num_parameters * DTYPE_BYTES[job.dtypes.activations],
        **probe.sizes,
    }


def _step_ns_per_parameter_byte(bench: Bench, watch: Stopwatch) -> float:
    """How long the optimizer takes, with clipping if the job clips; changes parameters."""
    job, subjects = bench.job, bench.subjects.values()
    make_optimizer = bench.options.optimizer or optimizer_factory(job.optimizer)
    parameters = [
        parameter
        for subject in subjects
        for parameter in subject.module.parameters()
        if parameter.grad is not None
    ]
    if not parameters:
        return 0.0
    optimizer = make_optimizer(parameters)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]

    @torch.no_grad()
    def step() -> None:
        if job.clip_norm is not None:  # as the executor does it, but for the exchange
            norms = [torch.linalg.vector_norm(each, dtype=torch.float64) for each in gradients]
            torch.stack(norms).square().sum().item()
            for gradient in gradients:
                gradient.mul_(1.0)
        optimizer.step()

    step()  # makes the states
    samples = [watch.time(step)[1] for _ in range(_OPTIMIZER_STEPS)]
    num_parameters = sum(subject.num_parameters for subject in subjects)
    return median(samples) / (num_parameters * DTYPE_BYTES[job.dtypes.activations])


def _layer_costs(alike: Sequence[_Findings], first: _Findings) -> Iterator[LayerCost]:
    """The costs on one type of device, from what all workers of that type found."""
    device_type = None if alike[0].device_type == first.device_type else alike[0].device_type
    for index, facts in enumerate(alike[0].facts):
        samples = {
            name: list(chain.from_iterable(each.samples[index][name] for each in alike))
            for name in TIMES
        }
        times_ns = {name: median_ns(values) for name, values in samples.items()}
        smallest_ns = _SMALL_PART * sum(times_ns.values())
        spread = max(
            relative_spread(samples[name])
            for name, time_ns in times_ns.items()
            if time_ns >= smallest_ns
        )
        others = {"spread": spread, "device_type": device_type}
        yield LayerCost.model_validate({**facts, **times_ns, **others})


def _host(device: torch.device) -> str:
    """The machine in words."""
    if device.type == "cuda":
        hardware = torch.cuda.get_device_name(device)
    else:
        hardware = f"{_cpu_name()}, {os.cpu_count()} cores"
    return f"{hardware}, {platform.system()}, torch {torch.__version__}"


def _cpu_name() -> str:
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text(encoding="utf-8").splitlines() if cpus.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _require_sizes(microbatch_sizes: Sequence[int]) -> None:
    wrong = [f"microbatch size {size}; give 1 or more" for size in microbatch_sizes if size < 1]
    if not microbatch_sizes:
        wrong.append("no microbatch size was given; give those that the planner may choose from")
    wrong += [
        f"microbatch size {size} is given {count} times; give it once"
        for size, count in Counter(microbatch_sizes).items()
        if count > 1
    ]
    if wrong:
        raise UsageError("these microbatch sizes cannot be measured", wrong)
