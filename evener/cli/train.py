"""``evener train``: run a plan on text, as a rank of torchrun."""

import argparse
import json
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evener.cli.inputs import (
    add_cluster,
    add_json,
    add_model,
    add_plan,
    add_profile,
    positive,
    read_cluster,
    read_model,
    require_name,
    require_ranks,
    whole_number,
)
from evener.cli.output import (
    held_alone,
    print_json,
    print_table,
    print_text,
    replace_file,
    require_writable,
    write_file,
)
from evener.cli.parser import Verbs, add_verb
from evener.cost.profile import Profile
from evener.errors import UsageError
from evener.ir.freezing import WHOLE_PPM, Freezing
from evener.ir.plan import Plan
from evener.ir.schedule import side_work_names
from evener.ir.timeline_json import timeline_to_json
from evener.planner.find_plan import PLANNERS
from evener.planner.replan.options import Replan, say_nothing
from evener.spec import ModelSpec
from evener.units import format_ns

if TYPE_CHECKING:
    from evener.executor.session import Session, Training
    from evener.executor.train import StepResult
    from evener.planner.replan.replanner import Switch

_WRITTEN_EVERY_S = 1.0


def add_parser(verbs: Verbs, name: str) -> None:
    parser = add_verb(
        verbs,
        name,
        does="run a plan on text; start it with torchrun",
        about="Reads a plan, its model and all text files below a folder; trains as one rank of"
        " torchrun.\nWith --replan, a run that is no longer what it was planned for (a slow worker"
        " or link,\nother sequence lengths) gets a new plan between two steps.",
        example="torchrun --nproc-per-node 2 -m evener train plan.json --model model.toml"
        " --data texts --suffix .txt --out run",
    )
    add_plan(parser)
    add_model(parser)
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder of text")
    parser.add_argument("--suffix", default=".py", help="which files to read (default .py)")
    parser.add_argument("--steps", metavar="N", help="default: the job's")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write measured.json, losses.json, replanned.json"
    )
    parser.add_argument(
        "--replan", action="store_true", help="plan anew while training; needs --cluster, --profile"
    )
    add_cluster(parser, required=False)
    add_profile(parser, required=False)
    parser.add_argument(
        "--planner", metavar="NAME", help="for --replan (default sweep); see `evener plan`"
    )
    parser.add_argument(
        "--time-limit", metavar="S", help="for --replan: of each search (default 60)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="check plan, model and data; start no training"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    plan, model = Plan.load(options.plan), read_model(options.model)
    plan.require_model(model)
    if pieces := side_work_names(plan.steps):
        raise UsageError(_side_work(pieces))
    steps = plan.job.steps
    if options.steps is not None:
        steps = whole_number(options.steps, "--steps")
    for path in _files(options):
        require_writable(path)
    if not options.dry_run:
        require_ranks(plan.num_workers, "train")
    session = _session(options, plan, model, steps)
    if options.dry_run:
        _print_intent(plan, steps, options)
        return 0
    from evener.executor.launch import rank_from_environment

    rank = rank_from_environment()
    if rank.index > 0:
        session.train(rank)
        return 0
    with ExitStack() as stack:
        if options.out is not None:
            stack.enter_context(held_alone(options.out))
            session = _recorded(session, options, stack)
        _finish(session.train(rank), options)
    return 0


def _side_work(names: list[str]) -> str:
    return (
        f"the plan has side work X:{names[0]}, and this command has no code to run for it; call"
        " evener.execute(..., options=TrainOptions(side_work=...)) from Python, or plan without"
        " side work"
    )


def _recorded(session: "Session", options: argparse.Namespace, stack: ExitStack) -> "Session":
    """The same run, whose losses are in their file: all at the end, until a second before earlier.

    The end may also be Ctrl-C, an error, or another rank's; after a kill of this rank the file is
    as it was a second before.
    """
    measured, path, planned = _files(options)
    losses: list[float] = []
    num_written = 0
    written_s = -inf
    one_at_a_time = threading.Lock()

    def write() -> None:
        nonlocal num_written, written_s
        with one_at_a_time:
            written_s = time.monotonic()
            if num_written < len(losses):
                now = losses[:]  # the main thread may go on
                replace_file(path, json.dumps(now))
                num_written = len(now)

    def on_step(step: int, result: "StepResult") -> None:
        if not losses:
            for other in (measured, planned):  # another run's would stand beside these losses
                other.unlink(missing_ok=True)
            stack.callback(write)
        losses.append(result.loss)
        if time.monotonic() > written_s + _WRITTEN_EVERY_S:
            write()
        if session.on_step is not None:
            session.on_step(step, result)

    return replace(session, on_step=on_step, at_end=write)


def _files(options: argparse.Namespace) -> tuple[Path, ...]:
    """The timeline of a median step, the losses, and the last plan if it is another one.

    The losses are written all along, the others at the end.
    """
    if options.out is None:
        return ()
    return tuple(options.out / f"{name}.json" for name in ("measured", "losses", "replanned"))


def _print_intent(plan: Plan, steps: int, options: argparse.Namespace) -> None:
    if options.json:
        print_json(
            {
                "workers": plan.num_workers,
                "steps": steps,
                "sequences": plan.job.num_sequences,
                "sequence_length": plan.sequence_length,
                "schedule": plan.schedule.name,
            }
        )
        return
    print_text(
        f"{plan.num_workers} workers would train {steps} steps of {plan.job.num_sequences} x"
        f" {plan.sequence_length} tokens with {plan.schedule.name}"
    )


def _session(options: argparse.Namespace, plan: Plan, model: ModelSpec, steps: int) -> "Session":
    """The run on the text below ``--data``."""
    if model.vocabulary_size is None:
        raise UsageError(
            f'model "{model.name}" has no vocabulary_size, so text cannot train it; give it one'
        )
    if not options.data.is_dir():
        raise UsageError(f"--data {options.data} is no folder; give one with text files below it")
    from evener.executor.session import Session
    from evener.executor.text_data import read_text

    text = read_text(options.data, vocabulary_size=model.vocabulary_size, suffix=options.suffix)

    def make_batch(step: int) -> dict[str, Any]:
        return text.batch(
            num_sequences=plan.job.num_sequences,
            sequence_length=plan.sequence_length,
            seed=plan.job.seed,
            step=step,
        )

    make_batch(0)  # a text that is too short is found before ranks meet
    return Session(
        plan,
        model,
        make_batch,
        steps,
        on_step=None if options.json else _print_step,
        replan=_replan(options),
    )


def _replan(options: argparse.Namespace) -> Replan | None:
    """How the plan is to change. Raises UsageError for flags that lack their companions."""
    flags = ("cluster", "profile", "planner", "time_limit")
    if not options.replan:
        alone = [f"--{name.replace('_', '-')}" for name in flags if getattr(options, name)]
        if alone:
            raise UsageError(f"without --replan there is no use for {', '.join(alone)}; add it")
        return None
    if options.cluster is None or options.profile is None:
        raise UsageError("--replan needs what the plan was made from: --cluster and --profile")
    planner = options.planner or "sweep"
    require_name(planner, PLANNERS, "planner")
    return Replan(
        read_cluster(options.cluster),
        Profile.load(options.profile),
        planner=planner,
        time_limit_s=float(positive(options.time_limit or "60", "--time-limit")),
        tell=say_nothing if options.json else print_text,
    )


def _print_step(step: int, result: "StepResult") -> None:
    assert result.timeline is not None, "sessions time every step"
    norm = "" if result.grad_norm is None else f"  grad norm {result.grad_norm:.3f}"
    time = format_ns(result.timeline.update_ns, digits=4)
    frozen = "" if result.freezing is None else f"  {_share(result.freezing)} frozen"
    print_text(f"step {step:4d}  loss {result.loss:.4f}{norm}  {time}{frozen}")


def _share(freezing: Freezing) -> str:
    return f"{freezing.mean_ppm / WHOLE_PPM:.1%}"


def _finish(training: "Training", options: argparse.Namespace) -> None:
    step_ns, freezing = training.timeline.update_ns, training.freezing
    if options.out is not None:
        measured, _, planned = _files(options)
        write_file(measured, timeline_to_json(training.timeline))
        if training.switches:
            plan = training.switches[-1].plan
            write_file(planned, plan.model_dump_json(indent=1) + "\n")
    if options.json:
        print_json(
            {
                "losses": training.losses,
                "grad_norms": training.grad_norms,
                "step_ns": training.step_ns,
                "median_step_ns": step_ns,
                **({} if freezing is None else {"freezing": freezing.lines()}),
                **({"switches": list(map(_as_json, training.switches))} if options.replan else {}),
            }
        )
        return
    frozen = {} if freezing is None else {"frozen": f"{_share(freezing)} in the last step"}
    print_table(
        {
            "steps": str(len(training.losses)),
            **_plans_row(training),
            **frozen,
            "step time": f"{format_ns(step_ns, digits=4)} (median)",
            "loss": f"{training.losses[0]:.4f} at the start, {training.losses[-1]:.4f} at the end",
        }
    )


def _as_json(switch: "Switch") -> dict[str, Any]:
    return {
        "step": switch.step,
        "reason": switch.reason,
        "schedule": switch.plan.schedule.name,
        "predicted_before_ns": switch.before_ns,
        "predicted_after_ns": switch.after_ns,
    }


def _plans_row(training: "Training") -> dict[str, str]:
    if not training.switches:
        return {}
    steps = ", ".join(str(switch.step) for switch in training.switches)
    return {"new plans": f"from step {steps} on"}
