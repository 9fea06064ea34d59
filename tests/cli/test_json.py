"""With --json every verb prints one object in one line; its keys are a promise."""

from pathlib import Path

import pytest

FILES = "--model model.toml --cluster cluster.toml --job job.toml"
OF_PLAN = "plan.json --profile profile.json --cluster cluster.toml"

KEYS = {
    f"measure {FILES} --dry-run": "devices layers microbatch_sizes sequence_length",
    f"plan {FILES} --profile profile.json --dry-run": "model cluster job profile",
    f"plan {FILES} --profile profile.json --planner uniform": (
        "objective_ns lower_bound_ns gap status runtime_s stats refused plan"
    ),
    "simulate --schedule gpipe": (
        "schedule makespan bubble_fraction peak_in_flight busy warm_up cool_down residual"
    ),
    f"simulate {OF_PLAN}": (
        "schedule step_ns bubble_fraction peak_in_flight peak_bytes busy_ns warm_up_ns"
        " cool_down_ns residual_ns"
    ),
    "compare": "workers microbatches lower_bound schedules refused",
    f"compare {FILES} --profile profile.json": (
        "workers microbatches lower_bound_ns schedules refused"
    ),
    "train plan.json --model model.toml --data text --dry-run": (
        "workers steps sequences sequence_length schedule"
    ),
    "report predicted.json measured.json --losses losses.json": (
        "title model status facts figures workers losses timelines"
    ),
    "report predicted.json --plan plan.json --model model.toml --cluster cluster.toml": (
        "title model status facts figures workers losses timelines"
    ),
    "export plan.json --to torch_csv --out plan.csv": "to unsupported written",
    "export plan.json --to torch_csv --out plan.csv --dry-run": "to unsupported written",
}
OF_PROCESSES = {
    f"emulate {OF_PLAN}": (
        "clock predicted_step_ns emulated_step_ns median_step_ns difference differing_times"
    ),
    "verify plan.json": "tolerance cases",
}


@pytest.mark.parametrize("command", KEYS)
def test_keys(command: str, call, here: Path) -> None:
    assert list(call(f"{command} --json").json) == KEYS[command].split()


@pytest.mark.dist
@pytest.mark.parametrize("command", OF_PROCESSES)
def test_keys_of_verbs_that_start_processes(command: str, call, here: Path) -> None:
    assert list(call(f"{command} --json").json) == OF_PROCESSES[command].split()


def test_files_are_written_besides(call, here: Path) -> None:
    call(f"plan {FILES} --profile profile.json --out new.json --json")
    call("report predicted.json --out report.html --trace trace.json --json")
    assert all(Path(name).stat().st_size for name in ("new.json", "report.html", "trace.json"))


def test_what_a_format_cannot_say_is_in_the_object(call, here: Path) -> None:
    plan = Path("plan.json")
    plan.write_text(plan.read_text().replace('"tied": []', '"tied": [[0, 1]]'))
    values = call("export plan.json --to torch_csv --out x --dry-run --json").json
    (reason,) = values["unsupported"]
    assert "share parameters" in reason
    assert values["written"] is None
