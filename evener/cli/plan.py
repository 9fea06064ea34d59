"""``evener plan``: find who runs which layers in which order."""

import argparse
import signal
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import BaseModel

from evener.api import find_plan
from evener.cli.inputs import (
    add_cluster,
    add_job,
    add_json,
    add_model,
    add_profile,
    positive,
    read_cluster,
    read_job,
    read_model,
    require_name,
    shared_out,
)
from evener.cli.output import (
    print_json,
    print_table,
    print_text,
    progress_bar,
    require_writable,
    warn,
    write_file,
)
from evener.cli.parser import Verbs, add_verb
from evener.cost.profile import Profile
from evener.ir.action import Kind
from evener.ir.freezing import WHOLE_PPM
from evener.ir.plan import Plan
from evener.planner.find_plan import PLANNERS
from evener.planner.problem import Problem
from evener.planner.result import PlanResult
from evener.planner.stop import MaxRuntime, NeverStop
from evener.units import format_bytes, format_ns


def add_parser(verbs: Verbs, name: str) -> None:
    parser = add_verb(
        verbs,
        name,
        does="find a plan, with a bound on how good it is",
        about="Reads a model, a cluster, a job and a profile; writes a plan: which layers form"
        " which stage, who runs it, and who does what in which order.",
        example="evener plan --model model.toml --cluster cluster.toml --job job.toml"
        " --profile profile.json --out plan.json",
    )
    add_model(parser)
    add_cluster(parser)
    add_job(parser)
    add_profile(parser)
    parser.add_argument(
        "--planner", default="sweep", metavar="NAME", help=f"{', '.join(PLANNERS)} (default sweep)"
    )
    parser.add_argument(
        "--time-limit", metavar="S", help="give the best plan after S seconds; so does Ctrl-C"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the plan as JSON")
    parser.add_argument(
        "--dry-run", action="store_true", help="read and check the files, search nothing"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    model, cluster = read_model(options.model), read_cluster(options.cluster)
    job, profile = read_job(options.job), Profile.load(options.profile)
    limit_s = None
    if options.time_limit is not None:
        limit_s = float(positive(options.time_limit, "--time-limit"))
    require_name(options.planner, PLANNERS, "planner")
    require_writable(options.out)
    if options.dry_run:
        Problem(model, cluster, job, profile)
        _print_understood(
            {"model": model, "cluster": cluster, "job": job, "profile": profile}, options
        )
        return 0
    warn(profile.unsteady)
    warn(shared_out(job, profile))
    stop = _StopOnInterrupt(NeverStop() if limit_s is None else MaxRuntime(limit_s))
    with stop, progress_bar("planning", quiet=options.json) as bar:
        result = find_plan(
            model,
            cluster,
            job,
            profile,
            planner=options.planner,
            stop=stop,
            progress=lambda done, total, best_ns: bar.update(
                bar.task_ids[0],
                completed=done,
                total=total,
                news="" if best_ns is None else f"best {format_ns(best_ns, digits=4)}",
            ),
        )
    if options.out is not None:
        write_file(options.out, result.best.model_dump_json(indent=1) + "\n")
    if options.json:
        print_json(_as_json(result))
    else:
        _print_result(result)
    return 0


class _StopOnInterrupt:
    """A stopping criterion that Ctrl-C fulfils; a second Ctrl-C interrupts for real."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._interrupted = False

    def __call__(self, best_ns: int | None) -> bool:
        return self._interrupted or self._inner(best_ns)

    def __enter__(self) -> "_StopOnInterrupt":
        self._previous = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupted = True
        signal.signal(signal.SIGINT, self._previous)


def _as_json(result: PlanResult) -> dict[str, Any]:
    return {
        "objective_ns": result.objective_ns,
        "lower_bound_ns": result.lower_bound_ns,
        "gap": result.gap,
        "status": result.status.value,
        "runtime_s": result.runtime_s,
        "stats": dict(result.stats),
        "refused": result.refused,
        "plan": result.best.model_dump(mode="json"),
    }


def _print_result(result: PlanResult) -> None:
    plan = result.best
    assert plan.predicted is not None, "planners predict"
    peaks = ", ".join(format_bytes(peak, digits=3) for peak in plan.predicted.peak_bytes)
    print_table(
        {
            "schedule": plan.schedule.name,
            "replicas": str(plan.replicas),
            "microbatches": f"{plan.schedule.num_microbatches} of {plan.microbatch_size}",
            **_slices(plan),
            **_head_row(plan),
            "step time": format_ns(result.objective_ns, digits=4),
            "lower bound": f"{format_ns(result.lower_bound_ns, digits=4)} (gap {result.gap:.1%})",
            "bubble": f"{plan.predicted.bubble_fraction:.1%}",
            **_offload_row(plan),
            **_recompute_row(plan),
            **_frozen_row(plan),
            **_side_work_row(plan),
            "peak memory": peaks,
            "searched": f"{result.stats['simulated']} plans in {result.runtime_s:.1f} s",
            "status": result.status.value,
        }
    )
    print_text("\n".join(_stage_lines(plan)))


def _head_row(plan: Plan) -> dict[str, str]:
    if not plan.job.spread_head:
        return {}
    return {"head": f"its rows are spread over {plan.schedule.num_workers} workers"}


def _offload_row(plan: Plan) -> dict[str, str]:
    num_cells = _num_actions(plan, Kind.OFFLOAD)
    if not num_cells:
        return {}
    of_each = "all"
    if plan.offload_bytes is not None:
        sizes = ", ".join(format_bytes(size, digits=3) for size in plan.offload_bytes)
        of_each = f"{sizes} of each by stage"
    return {
        "offload": f"{num_cells} of {len(plan.schedule.runner) * plan.replicas} activations go to "
        f"host memory for a while ({of_each})"
    }


def _recompute_row(plan: Plan) -> dict[str, str]:
    num_cells = _num_actions(plan, Kind.R)
    if not num_cells:
        return {}
    all_cells = len(plan.schedule.runner) * plan.replicas
    return {"recompute": f"{num_cells} of {all_cells} forwards are repeated"}


def _num_actions(plan: Plan, kind: Kind) -> int:
    """Of all replicas."""
    return plan.replicas * sum(action.kind is kind for _, action in plan.schedule.actions())


def _frozen_row(plan: Plan) -> dict[str, str]:
    if plan.freezing is None:
        return {}
    means = [sum(row) / len(row) / WHOLE_PPM for row in plan.freezing.share_ppm]
    by_stage = ", ".join(f"{mean:.1%}" for mean in means)
    return {"frozen": f"{plan.freezing.mean_ppm / WHOLE_PPM:.1%} on average ({by_stage} by stage)"}


def _side_work_row(plan: Plan) -> dict[str, str]:
    if not plan.cycle:
        return {}
    assert plan.predicted is not None, "planners predict"
    times_ns = {work.name: work.time_ns for work in plan.job.side_work}
    pieces = [a for step in plan.cycle for _, a in step.actions() if a.kind is Kind.X]
    busy_ns = sum(times_ns[str(action.name)] for action in pieces) * plan.replicas
    all_ns = plan.predicted.step_ns * plan.num_workers * len(plan.cycle)
    idle_ns = plan.predicted.bubble_fraction * all_ns
    steps = "every step" if len(plan.cycle) == 1 else f"every {len(plan.cycle)} steps"
    share = f"{busy_ns / idle_ns:.1%} of the bubble"
    return {"side work": f"{len(pieces) * plan.replicas} pieces {steps}, {share}"}


def _slices(plan: Plan) -> dict[str, str]:
    tokens = plan.slice_tokens
    return (
        {}
        if tokens is None
        else {"slices": f"{len(tokens)} of {' '.join(map(str, tokens))} tokens"}
    )


def _stage_lines(plan: Plan) -> list[str]:
    """One line per stage: who holds it and which layers it has."""
    lines = []
    for stage, (first, end) in enumerate(plan.partition):
        worker = plan.schedule.workers_of_stage[stage][0]
        devices = [
            name
            for replica in range(plan.replicas)
            for name in plan.devices[replica * plan.schedule.num_workers + worker]
        ]
        layers = plan.layer_names[first:end]
        names = layers[0] if len(layers) == 1 else f"{layers[0]} ... {layers[-1]}"
        lines.append(f"stage {stage} on {', '.join(devices)}: {len(layers)} layers, {names}")
    return lines


def _print_understood(parts: Mapping[str, BaseModel], options: argparse.Namespace) -> None:
    """The files as read, with all defaults."""
    if options.json:
        print_json({name: part.model_dump(mode="json") for name, part in parts.items()})
        return
    for name, part in parts.items():
        print_text(f"{name} {part.model_dump_json(indent=1, exclude={'layers'})}")
