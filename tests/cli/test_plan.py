"""What `evener plan` prints of each planner's answer, and of what a plan does besides."""

import pytest

from evener.planner.find_plan import PLANNERS

PLAN = "plan --model model.toml --cluster cluster.toml --job job.toml --profile profile.json"


@pytest.mark.parametrize("planner", sorted(PLANNERS))
def test_every_planner_has_an_answer_to_print(planner: str, call, here) -> None:
    answer = call(f"{PLAN} --planner {planner}")
    assert answer.code == 0, answer.err
    first_words = [line.split()[0] for line in answer.out.splitlines()]
    assert first_words[:3] == ["schedule", "replicas", "microbatches"]
    assert "searched" in first_words
    assert "recompute" not in first_words


def test_repeated_forwards_are_counted(call, here) -> None:
    job = here / "job.toml"
    job.write_text('recompute = "full"\n' + job.read_text("utf-8"), "utf-8")
    answer = call(f"{PLAN} --planner uniform")
    # 2 stages of 4 microbatches
    assert "recompute     8 of 8 forwards are repeated\n" in answer.out
