"""A dry run reads and checks all files, says what would be done, and leaves nothing behind."""

from pathlib import Path

import pytest

FILES = "--model model.toml --cluster cluster.toml --job job.toml"

SAID = {
    f"measure {FILES} --out new.json": (
        "2 processes would measure attention, embedding, head, mlp at microbatch sizes 1 of 8"
        " tokens\n"
    ),
    "train plan.json --model model.toml --data text --out new.json": (
        "2 workers would train 3 steps of 4 x 8 tokens with one_f_one_b\n"
    ),
    "export plan.json --to torch_csv --out new.json": "torch_csv can express the whole plan\n",
}


@pytest.mark.parametrize("command", SAID)
def test_says_what_would_be_done_and_writes_nothing(command: str, call, here: Path) -> None:
    before = sorted(here.rglob("*"))
    answer = call(f"{command} --dry-run")
    assert (answer.code, answer.out, answer.err) == (0, SAID[command], "")
    assert sorted(here.rglob("*")) == before


def test_plan_prints_its_files_with_all_defaults(call, here: Path) -> None:
    answer = call(f"plan {FILES} --profile profile.json --out new.json --dry-run")
    assert answer.code == 0
    assert '"memory_cap_bytes": 104857600' in answer.out
    assert '"recompute": "none"' in answer.out  # not in job.toml
    assert not Path("new.json").exists()
