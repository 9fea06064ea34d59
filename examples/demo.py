"""From a model of unequal layers to a measured speed-up, on this machine, in one command.

Measures the layers, plans, proves the plan, trains with it and with uniform 1F1B on the source
files of Python's standard library, and shows prediction and measurement side by side.
"""

import argparse
import json
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import evener
from evener.api import summarize
from evener.executor.text_data import read_text
from evener.executor.verify import verify
from evener.ir.timeline_json import timeline_to_json
from evener.sim.stats import bubbles
from evener.spec import load_toml

RECIPES = Path(__file__).parent.parent / "recipes"
MICROBATCH_SIZES = (1, 2, 4)


def main() -> int:
    out, steps = _arguments()
    out.mkdir(parents=True, exist_ok=True)
    model = load_toml(RECIPES / "models/demo.toml", evener.ModelSpec)
    cluster = load_toml(RECIPES / "clusters/local-2.toml", evener.ClusterSpec)
    job = load_toml(RECIPES / "jobs/demo.toml", evener.JobSpec)
    steps = steps or job.steps

    _say(f"measuring {len(model.layer_configs)} kinds of layer")
    profile = evener.measure(model, cluster, job, microbatch_sizes=MICROBATCH_SIZES)
    profile.save(out / "profile.json")
    if profile.unsteady:
        _say(profile.unsteady)

    _say("planning")
    found = evener.find_plan(model, cluster, job, profile)
    uniform = evener.find_plan(model, cluster, job, profile, planner="uniform")
    found.best.save(out / "plan.json")
    uniform.best.save(out / "uniform.json")

    _say("verifying that the plan trains as one process does")
    parity = verify(found.best)
    if not parity.holds:
        _say(f"it does not: {parity}")
        return 1

    text = read_text(Path(sysconfig.get_path("stdlib")), vocabulary_size=model.vocabulary_size)

    def make_batch(step: int) -> Mapping[str, object]:
        return text.batch(
            num_sequences=job.num_sequences,
            sequence_length=job.sequence_length,
            seed=job.seed,
            step=step,
        )

    runs = {}
    for name, result in (("uniform 1F1B", uniform), ("Evener", found)):
        _say(f"training {steps} steps: {name}, {result.best.schedule.name}")
        runs[name] = evener.execute(result.best, model, make_batch, steps=steps, local=True)
    _write(out, model, profile, cluster, found, runs["Evener"])
    print(_table(uniform, found, runs))
    print(f"worst difference from one process {parity.worst:.1e}; report: {out / 'report.html'}")
    return 0


def _arguments() -> tuple[Path, int | None]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for all results")
    parser.add_argument("--steps", type=int, help="default: the job's")
    options = parser.parse_args()
    return options.out, options.steps


def _say(text: str) -> None:
    print(f"... {text}", file=sys.stderr, flush=True)


def _write(out: Path, model, profile, cluster, found, run) -> None:
    """Everything that the table stands on."""
    plan = found.best
    predicted = evener.simulate(plan, profile, cluster)
    (out / "predicted.json").write_text(timeline_to_json(predicted))
    (out / "measured.json").write_text(timeline_to_json(run.timeline))
    (out / "losses.json").write_text(json.dumps(run.losses))
    evener.report(
        predicted,
        run.timeline,
        path=out / "report.html",
        summary=summarize(plan, model, cluster),
        losses=run.losses,
    )


def _table(uniform, found, runs) -> str:
    columns = {
        name: _column(result, runs[name])
        for name, result in (("uniform 1F1B", uniform), ("Evener", found))
    }
    rows = next(iter(columns.values())).keys()
    lines = [f"{'':24}" + "".join(f"{name:>16}" for name in columns)]
    lines += [
        f"{row:24}" + "".join(f"{column[row]:>16}" for column in columns.values()) for row in rows
    ]
    speed_up = runs["uniform 1F1B"].timeline.step_ns / runs["Evener"].timeline.step_ns
    predicted = uniform.objective_ns / found.objective_ns
    lines.append(f"speed-up: {speed_up:.2f}x measured, {predicted:.2f}x predicted")
    lines.append(
        f"with these costs no plan takes less than {found.lower_bound_ns / 1e6:.1f} ms; the plan's"
        f" prediction is {found.gap:.1%} above that"
    )
    return "\n".join(lines)


def _column(result, run) -> dict[str, str]:
    plan, measured_ns = result.best, run.timeline.step_ns
    sizes = "+".join(str(end - first) for first, end in plan.partition)
    return {
        "schedule": plan.schedule.name.replace("interleaved_one_f_one_b", "interleaved"),
        "layers per stage": sizes,
        "microbatch size": str(plan.microbatch_size),
        "predicted step": f"{result.objective_ns / 1e6:.1f} ms",
        "measured step (median)": f"{measured_ns / 1e6:.1f} ms",
        "measured - predicted": f"{measured_ns / result.objective_ns - 1:+.1%}",
        "bubble, predicted": f"{plan.predicted.bubble_fraction:.1%}",
        "bubble, measured": f"{bubbles(run.timeline).bubble_fraction:.1%}",
        "loss at the start": f"{run.losses[0]:.3f}",
        "loss at the end": f"{run.losses[-1]:.3f}",
    }


if __name__ == "__main__":
    sys.exit(main())
