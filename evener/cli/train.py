"""``evener train``: run a plan on text, as a rank of torchrun."""

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evener.cli.inputs import add_json, add_model, read_model, whole_number
from evener.cli.output import print_json, print_table, print_text, write_file
from evener.errors import UsageError
from evener.ir.plan import Plan
from evener.ir.timeline_json import timeline_to_json
from evener.spec import ModelSpec
from evener.units import format_ns

if TYPE_CHECKING:
    from evener.executor.session import Session, Training
    from evener.executor.train import StepResult


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser(
        "train",
        help="run a plan on text; start it with torchrun",
        description="Start it with: torchrun --nproc-per-node WORKERS -m evener train PLAN ...",
    )
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a plan file")
    add_model(parser)
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder of text")
    parser.add_argument("--suffix", default=".py", help="which files to read (default .py)")
    parser.add_argument("--steps", metavar="N", help="default: the job's")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write measured.json, losses.json")
    parser.add_argument(
        "--dry-run", action="store_true", help="check plan, model and data; start no training"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    plan, model = Plan.load(options.plan), read_model(options.model)
    plan.require_model(model)
    steps = whole_number(options.steps or str(plan.job.steps), "--steps")
    session = _session(options, plan, model, steps)
    if options.dry_run:
        print_text(
            f"{plan.num_workers} workers would train {steps} steps of {plan.job.num_sequences} x"
            f" {plan.sequence_length} tokens with {plan.schedule.name}"
        )
        return 0
    from evener.executor.launch import rank_from_environment

    require_launched(plan)
    rank = rank_from_environment()
    training = session.train(rank)
    if rank.index == 0:
        _finish(training, options)
    return 0


def require_launched(plan: Plan) -> None:
    """Raise UsageError unless this process is one of as many ranks as the plan has workers."""
    num_ranks = os.environ.get("WORLD_SIZE", "no")
    if num_ranks != str(plan.num_workers):
        raise UsageError(
            f"the plan has {plan.num_workers} workers, but there are {num_ranks} ranks; start it"
            f" with: torchrun --nproc-per-node {plan.num_workers} -m evener train ..."
        )


def _session(options: argparse.Namespace, plan: Plan, model: ModelSpec, steps: int) -> "Session":
    """The run on the text below ``--data``."""
    from evener.executor.session import Session
    from evener.executor.text_data import read_text

    if model.vocabulary_size is None:
        raise UsageError(f'model "{model.name}" has no vocabulary; text cannot train it')
    if not options.data.is_dir():
        raise UsageError(f"--data {options.data} is no folder; give one with text files below it")
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
    )


def _print_step(step: int, result: "StepResult") -> None:
    assert result.timeline is not None, "sessions time every step"
    norm = "" if result.grad_norm is None else f"  grad norm {result.grad_norm:.3f}"
    time = format_ns(result.timeline.step_ns, digits=4)
    print_text(f"step {step:4d}  loss {result.loss:.4f}{norm}  {time}")


def _finish(training: "Training", options: argparse.Namespace) -> None:
    step_ns = training.timeline.step_ns
    if options.out is not None:
        write_file(options.out / "measured.json", timeline_to_json(training.timeline))
        write_file(options.out / "losses.json", json.dumps(training.losses))
    if options.json:
        print_json(
            {
                "losses": training.losses,
                "grad_norms": training.grad_norms,
                "step_ns": training.step_ns,
                "median_step_ns": step_ns,
            }
        )
        return
    print_table(
        {
            "steps": str(len(training.losses)),
            "step time": f"{format_ns(step_ns, digits=4)} (median)",
            "loss": f"{training.losses[0]:.4f} at the start, {training.losses[-1]:.4f} at the end",
        }
    )
