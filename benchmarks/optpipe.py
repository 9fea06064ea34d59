"""Half of the memory of 1F1B, with offload and recomputation: ``python -m benchmarks.optpipe``.

The cap of every worker is half of what the fullest worker of 1F1B holds for its microbatches
(weights, gradients and optimizer states come on top of both and are the same).  Under it, for each
world:

- recompute all: the fastest registered schedule that recomputes every cell right before its
  backward;
- offload all: the fastest registered schedule that offloads every cell that lives long enough;
- 1F1B: the better of the two, if 1F1B is the only schedule;
- neither: the fastest registered schedule that fits as it is;
- AdaOffload: the start of the search; ours: ``evener plan --planner optpipe``.

Idle time is the sum over workers of the step less the useful computation (forwards and backwards
without recomputation), over that computation.  The ratio is ours to the better of recompute all and
offload all, of all schedules and of 1F1B.

Layers of the uniform worlds are those of a 7B transformer at 4096 tokens on a GPU of 400 TFLOPS:
4.5 ms each for forward, input gradient and weight gradient, 570 MB saved by the forward, 200 MB
left for the weight gradient, 33.5 MB passed on.  The unequal world has the measured times of
Nemotron-Nano-v2-9B (``tests/data/hybrid_profiles.toml``); what its layers save is put in proportion
to its forwards, 127 MB per ms (the head's logits 1.1 GB).  GPUs send at 300 GB/s and 10 us.  The
link to the host carries 50 GB/s each way (PCIe 5 x16), for one GPU or for a pair that shares it.
"""

import argparse
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evener.cost.profile import LayerCost, LinkCost, Profile
from evener.errors import PlanInfeasible, ScheduleError
from evener.ir.action import Action, Kind
from evener.ir.passes import insert_offload, offloadable
from evener.ir.schedule import Schedule
from evener.planner.candidate import Candidate, Shape
from evener.planner.optpipe.plan_optpipe import OptPipePlanner
from evener.planner.problem import Problem
from evener.planner.registered import registered_candidates
from evener.planner.stop import MaxRuntime, NeverStop
from evener.planner.sweep import balanced
from evener.schedules import SCHEDULES, ScheduleShape
from evener.spec.cluster import ClusterSpec
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec

DATA = Path(__file__).parents[1] / "tests" / "data"
MB = 10**6
MB_PER_MS = 127
LETTERS = {"-": "mlp", "*": "attention"}


@dataclass(frozen=True)
class World:
    """layers: costs by name; pattern: names in order. sharing: GPUs on one link to the host."""

    name: str
    layers: dict[str, LayerCost]
    pattern: tuple[str, ...]
    workers: int
    microbatches: int
    sharing: int = 1


def layer(name: str, times_ms: Sequence[float], *, saved_mb: float, passed_mb: float) -> LayerCost:
    forward_ns, input_ns, weight_ns = (round(1e6 * each) for each in times_ms)
    return LayerCost(
        layer=name,
        microbatch_size=1,
        sequence_length=4096,
        forward_ns=forward_ns,
        backward_ns=input_ns + weight_ns,
        input_grad_ns=input_ns,
        weight_grad_ns=weight_ns,
        recompute_ns=forward_ns,
        parameter_bytes=0,
        activation_bytes=round(saved_mb * MB),
        weight_gradient_bytes=round(saved_mb * 0.35 * MB),
        input_bytes=round(passed_mb * MB),
        output_bytes=round(passed_mb * MB),
    )


def uniform(workers: int, microbatches: int, sharing: int = 1) -> World:
    block = layer("block", (4.5, 4.5, 4.5), saved_mb=570, passed_mb=33.5)
    name = f"uniform {workers}x{microbatches}"
    pattern = ("block",) * (4 * workers)
    return World(name, {"block": block}, pattern, workers, microbatches, sharing)


def nano(workers: int, microbatches: int, sharing: int = 1) -> World:
    text = (DATA / "hybrid_profiles.toml").read_text(encoding="utf-8")
    profile = tomllib.loads(text)["nemotron-nano-v2-9B"]
    pattern = tuple(LETTERS.get(each, each) for each in f"E{profile['pattern']}L")
    layers = {
        (name := LETTERS.get(letter, letter)): layer(
            name,
            profile[letter],
            saved_mb=1100 if letter == "L" else MB_PER_MS * profile[letter][0],
            passed_mb=36.7,
        )
        for letter in sorted({*profile["pattern"], "E", "L"})
    }
    name = f"nano-9B {workers}x{microbatches}"
    return World(name, layers, pattern, workers, microbatches, sharing)


WORLDS = (
    uniform(4, 8),
    uniform(4, 8, sharing=2),
    uniform(8, 16),
    uniform(8, 16, sharing=2),
    nano(4, 8),
    nano(4, 8, sharing=2),
    nano(8, 16),
)


def problem_of(world: World, cap_bytes: int | None) -> Problem:
    """cap_bytes: of every worker; None means more than anybody needs."""
    model = ModelSpec.model_validate(
        {
            "name": "benchmark",
            "hidden_size": 1,
            "norm": "none",
            "layer": {name: {"kind": "module", "num_parameters": 0} for name in world.layers},
            "pattern": " ".join(world.pattern),
        }
    )
    device = {
        "memory": "10 TB",
        "peak": {"bfloat16": "400 TFLOP/s"},
        "memory_bandwidth": "3 TB/s",
        "link": {"bandwidth": "300 GB/s", "latency": "10 us"},
        "host": {"bandwidth": "50 GB/s", "latency": "10 us"},
    }
    cluster = ClusterSpec.model_validate(
        {
            "name": "benchmark",
            "device": {"gpu": device},
            "nodes": (
                {
                    "name": "node",
                    "device": "gpu",
                    "count": world.workers,
                    "host_link_devices": world.sharing,
                },
            ),
        }
    )
    profile = Profile(
        model="benchmark",
        fingerprint=model.fingerprint(),
        device_type="gpu",
        host="benchmarks/optpipe.py",
        dtype="float32",
        layers=tuple(world.layers.values()),
        links=(
            LinkCost(
                from_device="gpu", to_device="gpu", latency_ns=10_000, bytes_per_s=300 * 10**9
            ),
        ),
    )
    job = JobSpec(
        global_batch_sequences=world.microbatches,
        sequence_length=4096,
        microbatch_size=1,
        offload=True,
        recompute="auto",
        memory_cap_bytes=cap_bytes,
    )
    return Problem(model, cluster, job, profile)


def all_recomputed(schedule: Schedule) -> Schedule:
    """R of every cell right before its backward."""

    def written(actions: Sequence[Action]) -> Iterator[Action]:
        for action in actions:
            if action.kind in (Kind.B, Kind.I):
                yield action._replace(kind=Kind.R)
            yield action

    workers = tuple(tuple(written(actions)) for actions in schedule.workers)
    return replace(schedule, workers=workers)


def all_offloaded(schedule: Schedule) -> Schedule:
    return insert_offload(schedule, offloadable(schedule))


def as_it_is(schedule: Schedule) -> Schedule:
    return schedule


def fastest(
    problem: Problem, change: Callable[[Schedule], Schedule], names: Sequence[str] = ()
) -> tuple[int, str] | None:
    """Step and name of the fastest registered schedule that fits once it is changed."""
    found = []
    for candidate in registered_candidates(problem, microbatch_size=1, replicas=1):
        name = candidate.shape.entry.name
        if (names and name not in names) or candidate.regular.braids:
            continue
        partition = balanced(candidate, with_caps=False)
        assert partition is not None
        try:
            evaluated = candidate.judge(partition, change(candidate.regular))
        except ScheduleError:
            continue
        if not evaluated.over:
            found.append((evaluated.step_ns, name))
    return min(found, default=None)


def peak_of_1f1b(world: World) -> int:
    problem = problem_of(world, None)
    entry = SCHEDULES["one_f_one_b"]
    shape = ScheduleShape(world.workers, world.microbatches)
    candidate = Candidate(problem, Shape(entry, shape, 1, 1))
    partition = balanced(candidate, with_caps=False)
    assert partition is not None
    return max(candidate.evaluate(partition).outcome.peak_bytes)


def useful_ns(world: World) -> int:
    costs = [world.layers[name] for name in world.pattern]
    one = sum(c.forward_ns + min(c.backward_ns, c.input_grad_ns + c.weight_grad_ns) for c in costs)
    return one * world.microbatches


def row(world: World, *, cap: float, planner: OptPipePlanner, seconds: float | None) -> str:
    cap_bytes = round(cap * peak_of_1f1b(world))
    problem, useful = problem_of(world, cap_bytes), useful_ns(world)

    def idle(step_ns: int) -> float:
        return (world.workers * step_ns - useful) / useful

    def cell(found: tuple[int, str] | None) -> str:
        if found is None:
            return f"{'does not fit':>27}"
        return f"{found[0] / 1e6:8.1f} {idle(found[0]):6.1%} {found[1][:11]:11}"

    again, out = (fastest(problem, change) for change in (all_recomputed, all_offloaded))
    plain = ("one_f_one_b",)
    simple = [fastest(problem, change, plain) for change in (all_recomputed, all_offloaded)]
    neither = fastest(problem, as_it_is)
    begin_s = time.process_time()
    options = {"stop": NeverStop(), "seed": 0, "progress": lambda *_: None}
    try:
        begun = replace(planner, num_actions=0)(problem, **options)
        options["stop"] = NeverStop() if seconds is None else MaxRuntime(seconds)
        ours = planner(problem, **options)
    except PlanInfeasible as error:
        return f"{world.name}: {error}"
    kinds = [action.kind for _, action in ours.best.schedule.actions()]
    assert ours.best.predicted is not None
    assert max(ours.best.predicted.peak_bytes) <= cap_bytes
    step_ns = ours.objective_ns

    def ratio(others: Sequence[tuple[int, str] | None]) -> float:
        steps = [each[0] for each in others if each is not None]
        return idle(step_ns) / idle(min(steps)) if steps else 0.0

    return (
        f"{world.name + (' pairs' if world.sharing > 1 else ''):18}{cap_bytes / 1e9:6.1f} GB "
        f"{cell(again)} {cell(out)} {cell(min((s for s in simple if s), default=None))} "
        f"{cell(neither)} {begun.objective_ns / 1e6:8.1f} {idle(begun.objective_ns):6.1%}"
        f"{step_ns / 1e6:9.1f} {idle(step_ns):6.1%}{ratio([again, out]):7.2f}{ratio(simple):7.2f}"
        f"{kinds.count(Kind.OFFLOAD):5}{kinds.count(Kind.R):5}{kinds.count(Kind.I):5}"
        f"{time.process_time() - begin_s:7.1f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actions", type=int, default=OptPipePlanner.num_actions)
    parser.add_argument("--seconds", type=float, help="limit of each row")
    parser.add_argument("--cap", type=float, default=0.5, help="times the peak of 1F1B")
    parser.add_argument("--rows", type=int, nargs="*", help="numbers of the worlds, from 0")
    options = parser.parse_args()
    titles = ("recompute all", "offload all", "1F1B, better of both", "neither")
    print(f"{'world':18}{'cap':>9} " + "".join(f"{title:>28}" for title in titles), end="")
    print(f"{'AdaOffload':>15}{'ours':>16}{'ratio':>7}{'1F1B':>7}  off    R    I  cpu s")
    for number, world in enumerate(WORLDS):
        if options.rows is None or number in options.rows:
            planner = OptPipePlanner(options.actions)
            print(row(world, cap=options.cap, planner=planner, seconds=options.seconds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
