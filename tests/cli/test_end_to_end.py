"""Every verb after the other on the files of the one before, in real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.dist, pytest.mark.timeout(240)]

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
FILES = "--model model.toml --cluster cluster.toml --job job.toml"
OF_PLAN = "new/plan.json --profile new/profile.json --cluster cluster.toml"


def evener(command: str, *, launcher: tuple[str, ...] = (sys.executable,)) -> dict[str, object]:
    """The object that a command prints with --json."""
    result = subprocess.run(
        [*launcher, "-m", "evener", *command.split(), "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") == 1, result.stdout
    return json.loads(result.stdout)


def test_from_measuring_to_a_report(here: Path) -> None:
    profile = evener(f"measure {FILES} --out new/profile.json")
    assert json.loads(Path("new/profile.json").read_text()) == profile
    assert [layer["layer"] for layer in profile["layers"]] == [
        "embedding", "attention", "mlp", "head",
    ]  # fmt: skip

    planned = evener(
        f"plan {FILES} --profile new/profile.json --planner uniform --out new/plan.json"
    )
    assert planned["lower_bound_ns"] <= planned["objective_ns"]
    assert json.loads(Path("new/plan.json").read_text()) == planned["plan"]

    predicted = evener(f"simulate {OF_PLAN} --out new/predicted.json")
    assert predicted["step_ns"] == planned["objective_ns"]

    emulated = evener(f"emulate {OF_PLAN} --out new/emulated.json")
    assert emulated["differing_times"] == 0
    measured = evener(f"emulate {OF_PLAN} --clock measured --model model.toml --steps 3")
    assert len(measured["emulated_step_ns"]) == 3

    trained = evener(
        "train new/plan.json --model model.toml --data text --steps 4 --out new/run",
        launcher=tuple(TORCHRUN),
    )
    assert json.loads(Path("new/run/losses.json").read_text()) == trained["losses"]
    assert len(trained["step_ns"]) == 4
    assert trained["losses"][-1] < trained["losses"][0]

    report = evener(
        "report new/predicted.json new/run/measured.json --losses new/run/losses.json"
        " --plan new/plan.json --model model.toml --cluster cluster.toml --out new/report.html"
    )
    assert report["losses"] == trained["losses"]
    assert report["figures"]["step_ns"] == {
        "predicted": predicted["step_ns"],
        "measured": trained["median_step_ns"],
        "difference": pytest.approx(trained["median_step_ns"] / predicted["step_ns"] - 1),
    }
    assert {"tokens_per_s", "mfu", "peak_bytes"} <= report["figures"].keys()
    assert "<script" in Path("new/report.html").read_text()

    exported = evener("export new/plan.json --to torch_csv --out new/schedule.csv")
    assert exported == {"to": "torch_csv", "unsupported": [], "written": "new/schedule.csv"}
    assert Path("new/schedule.csv").read_text().splitlines()[1] == "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3"


def test_a_job_that_freezes(here: Path) -> None:
    with Path("job.toml").open("a") as job:
        job.write(
            "\n[freeze]\nmax_share = 0.75\nwarmup_steps = 1\nmonitor_steps = 2\nramp_steps = 2"
        )
    planned = evener(f"plan {FILES} --profile profile.json --planner uniform --out new/plan.json")
    lines = planned["plan"]["freezing"]
    assert 0 < max(int(share) for line in lines for share in line.split()) <= 10**6

    of_plan = "new/plan.json --profile profile.json --cluster cluster.toml"
    assert evener(f"simulate {of_plan}")["step_ns"] == planned["objective_ns"]
    assert evener(f"emulate {of_plan}")["differing_times"] == 0

    trained = evener(
        "train new/plan.json --model model.toml --data text --steps 7",
        launcher=tuple(TORCHRUN),
    )
    assert len(trained["freezing"]) == len(lines)
    assert len(trained["losses"]) == 7


def test_an_error_of_the_user_under_torchrun_is_told_by_every_rank(here: Path) -> None:
    command = "train plan.json --model model.toml --data no"
    result = subprocess.run(
        [*TORCHRUN, "-m", "evener", *command.split()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    assert "evener: --data no is no folder; give one with text files below it" in result.stderr
    assert "evener/cli/" not in result.stderr  # the traceback is torchrun's own
