"""``evener compare`` from the command line."""

from pathlib import Path

import pytest

from evener.cost.profile import Profile, SliceLatency

FILES = "--model model.toml --cluster cluster.toml --job job.toml --profile profile.json"


def test_rows_of_equal_workers(call) -> None:
    values = call("compare --workers 2 --microbatches 2 --forward 0.5 --chunks 1 --json").json
    rows = {row["schedule"]: row for row in values["schedules"]}
    # GPipe: (2 + 1)(0.5 + 2) and 2 x 2.5 of work on each worker
    assert rows["gpipe"] == {
        "schedule": "gpipe",
        "stages": 2,
        "slices": 1,
        "makespan": 7.5,
        "peak_memory": [2, 2],
        "bubble_fraction": pytest.approx(1 / 3),
        "gap": pytest.approx(0.5),
        "peak_in_flight": [2, 2],
        "messages": 4,
        "gradient_sums": 0,
    }
    assert values["lower_bound"] == 5
    steps = [row["makespan"] for row in values["schedules"]]
    assert steps == sorted(steps)


def test_a_third_of_a_share_is_exact(call) -> None:
    values = call("compare --workers 2 --microbatches 2 --chunks 3 --json").json
    rows = {row["schedule"]: row for row in values["schedules"]}
    # 6 stages of a third of 1 + 2: (3 x 2 + 1) x 1
    assert rows["interleaved_one_f_one_b"]["makespan"] == 7


def test_schedules_of_slices_where_they_are_asked_for(call) -> None:
    command = "compare --workers 2 --microbatches 2 --chunks 1 --json"
    assert "seq1f1b" not in {row["schedule"] for row in call(command).json["schedules"]}
    values = call(f"{command} --slices 3").json
    rows = {row["schedule"]: row for row in values["schedules"]}
    # (2 x 3 + 1) slots of a third of 3; worker 0 holds 3 + 1 slices.
    assert rows["seq1f1b"]["makespan"] == 7
    assert rows["seq1f1b"]["slices"] == 3
    assert rows["seq1f1b"]["peak_memory"] == [4 / 3, 1]
    assert rows["one_f_one_b"]["makespan"] == 9
    assert values["lower_bound"] == 6  # all work of a worker


def test_a_job_with_slices_compares_them(call, here: Path) -> None:
    with Path("job.toml").open("a") as file:
        file.write("slices = 2\n")
    answer = call(f"compare {FILES} --chunks 1 --json")
    assert {row["slices"] for row in answer.json["schedules"]} == {1, 2}
    planned = call(f"plan {FILES} --json")
    assert planned.json["plan"]["job"]["slices"] == 2
    warning = (
        "evener: warning: the profile has no times of slices, so TeraPipe cuts by those of whole "
        "microbatches, shared out by operations; measure with slices in the job\n"
    )
    assert (answer.err, planned.err) == (warning, warning)


def test_measured_slices_are_not_shared_out(call, here: Path) -> None:
    with Path("job.toml").open("a") as file:
        file.write("slices = 2\n")
    profile = Profile.load("profile.json")
    # Two parts of the 8 tokens that sequences have.
    latency = SliceLatency(microbatch_size=1, sequence_length=8, latency_ns=((5, 9), (6,)))
    profile.model_copy(update={"slice_latencies": (latency,)}).save("profile.json")
    assert call(f"plan {FILES} --json").err == ""


def test_a_cap_moves_schedules_to_the_refused(call) -> None:
    values = call("compare --workers 2 --microbatches 4 --memory 2 --json").json
    assert all(max(row["peak_memory"]) <= 2 for row in values["schedules"])
    reasons = {row["schedule"]: row["reason"] for row in values["refused"]}
    assert reasons["gpipe"] == "holds 4 microbatches on a worker, the cap is 2"
    assert "one_f_one_b" not in reasons


def test_rows_of_a_model(call, here: Path) -> None:
    values = call(f"compare {FILES} --json").json
    rows = {(row["schedule"], row["stages"]): row for row in values["schedules"]}
    row = rows["one_f_one_b", 2]
    # Two stages of 10 + 40 + 30 and 80 us forward, twice that backward; 4 + 4 messages of 512 B
    assert row["message_bytes"] == 8 * 512
    assert values["lower_bound_ns"] == 4 * 3 * 160_000 // 2
    # (4 + 1) x 240 us; 4 messages of 5.512 us are waited for; the norm takes 2 x (5000 + 4) ns
    assert row["step_ns"] == 5 * 240_000 + 4 * 5_512 + 10_008


def test_the_page_and_the_table(call, here: Path) -> None:
    answer = call(f"compare {FILES} --chunks 1 --out new/page.html")
    assert answer.code == 0
    assert "peak memory" in answer.out
    assert "refused" in answer.out
    page = Path("new/page.html").read_text(encoding="utf-8")
    assert "<h1>Schedules for 2 workers, 4 microbatches</h1>" in page


def test_freezing_is_compared_where_it_is_asked_for(call) -> None:
    values = call("compare --chunks 1 --weight 1 --freeze 0.5 --json").json
    rows = {row["schedule"]: row for row in values["schedules"]}
    # F = I = W = 1 on 4 workers, 8 microbatches: 33, and 26 with a mean share of 0.375.
    row = rows["one_f_one_b"]
    assert (row["makespan"], row["frozen_makespan"]) == (33, pytest.approx(26, abs=1e-5))
    assert row["frozen_share"] == pytest.approx(0.375, abs=1e-5)
    assert row["evenly_frozen_makespan"] == pytest.approx(11 * 2.625, abs=1e-4)
    table = call("compare --chunks 1 --weight 1 --freeze 0.5").out
    assert "frozen step   frozen    evenly" in table
    # 8 x 3 of work; in both directions two of four workers wait for the first F: 2 / 4
    assert "no schedule can take less than 24.5 with nothing frozen" in table


@pytest.mark.parametrize("share", ["0", "1.5", "half", "nan"])
def test_what_is_no_share_is_refused(call, share: str) -> None:
    answer = call(f"compare --freeze {share}")
    assert answer.err == (
        f'evener: --freeze "{share}" is no share; give more than 0, and 1 or less\n'
    )


def test_a_share_that_would_freeze_nothing_is_refused(call):
    assert call("compare --freeze 1e-9").err == (
        'evener: --freeze "1e-9" rounds to 0 parts per million; give 0.000001 or more\n'
    )


def test_asynchronous_schedules_are_compared_where_updates_are_given(call) -> None:
    names = {row["schedule"] for row in call("compare --chunks 1 --json").json["schedules"]}
    assert not names & {"amdp_2", "amdp_4", "pipedream_2bw"}
    rows = call("compare --chunks 1 --updates 10 --json").json["schedules"]
    spans = {row["schedule"]: row["makespan"] for row in rows}
    # 4 workers, 8 microbatches: (8 x 10 + 3) x 3 for 10 updates; (8 + 3) x 3 for one with a flush.
    assert spans["pipedream_2bw"] == 24.9
    assert spans["one_f_one_b"] == 33
    assert "amdp_4" in spans
    answer = call("compare --updates 10 --freeze 0.5")
    assert answer.err == (
        "evener: --freeze is for one update between two flushes; leave it out, or leave --updates "
        "out\n"
    )
