"""``evener simulate``: closed forms from flags, and a plan with its files."""

import json
from pathlib import Path

import pytest

from evener.ir.passes import insert_offload, offloadable
from evener.ir.plan import Plan
from evener.ir.text import format_schedule
from evener.ir.timeline_json import load_timeline
from evener.schedules import SCHEDULES, ScheduleShape

ONE_F_ONE_B = "simulate --schedule one_f_one_b --stages 4 --microbatches 8"
OF_PLAN = "plan.json --profile profile.json --cluster cluster.toml"


def test_one_f_one_b_takes_what_the_formula_says(call) -> None:
    """(m + p - 1)(tF + tB) = 11 * 3; idle (p - 1)(tF + tB) = 9 of 33 per worker."""
    values = call(f"{ONE_F_ONE_B} --forward 1 --backward 2 --json").json
    assert values["makespan"] == 33
    assert values["bubble_fraction"] == pytest.approx(9 / 33)
    assert values["peak_in_flight"] == [4, 3, 2, 1]
    assert values["busy"] == [24] * 4


def test_times_may_have_fractions(call) -> None:
    """11 * (0.5 + 0.75) = 13.75."""
    values = call(f"{ONE_F_ONE_B} --forward 0.5 --backward 0.75 --json").json
    assert values["makespan"] == 13.75


@pytest.mark.parametrize(
    ("forward", "backward", "makespan"),
    [
        ("2.5e-7", "5e-7", 8.25e-6),  # 11 * 7.5e-7
        ("1e-12", "2e-12", 3.3e-11),
        ("0.1234567", "1", 12.3580237),  # 11 * 1.1234567
        ("1", "0.000001", 11.000011),  # I and W are half of a millionth each
    ],
)
def test_times_are_exact_however_small(call, forward: str, backward: str, makespan: float) -> None:
    flags = f"--forward {forward} --backward {backward} --json"
    assert call(f"{ONE_F_ONE_B} {flags}").json["makespan"] == makespan
    split = call(f"{ONE_F_ONE_B} --split {flags}").json
    assert split["busy"] == [pytest.approx(8 / 11 * makespan, rel=1e-15)] * 4
    compared = call(f"compare --microbatches 8 --chunks 1,3 {flags}").json["schedules"]
    own = [row for row in compared if (row["schedule"], row["stages"]) == ("one_f_one_b", 4)]
    assert own[0]["makespan"] == makespan


@pytest.mark.dist
def test_an_emulated_unit_may_be_a_fraction(call) -> None:
    """GPipe, 2 stages, 1 microbatch: 2 * 3 units of 2500 ns; half of a nanosecond is no time."""
    command = "emulate --schedule gpipe --stages 2 --microbatches 1 --json"
    assert call(f"{command} --unit 0.0025").json["predicted_step_ns"] == 15_000
    assert call(f"{command} --unit 0.0000005 --forward 2").err == (
        "evener: times to be emulated are whole numbers of nanoseconds\n"
        "  --weight is 1 of 0.5 ns; choose times and --unit so that their product is whole\n"
    )


def test_a_latency_delays_every_message(call) -> None:
    """GPipe, 2 stages, 1 microbatch: F0, message, F1, B1, message, B0 = 1 + 5 + 1 + 2 + 5 + 2."""
    values = call("simulate --schedule gpipe --stages 2 --microbatches 1 --latency 5 --json").json
    assert values["makespan"] == 16


def test_a_split_backward_shortens_the_drain(call) -> None:
    """I = W = 1: the stage before gets its gradient (p - 1) * 1 earlier: 33 - 3."""
    assert call(f"{ONE_F_ONE_B} --split --json").json["makespan"] == 30


def test_weight_says_how_much_of_a_backward_is_w(call) -> None:
    """ZB-H1 idles (p - 1)(tF + tI - tW) = 3 * (1 + 1.5 - 0.5) beside 8 * 3 of work."""
    values = call("simulate --schedule zb_h1 --stages 4 --microbatches 8 --weight 0.5 --json").json
    assert values["makespan"] == pytest.approx(24 + 3 * 2)


def test_text_is_in_the_unit_of_the_flags(call) -> None:
    answer = call("simulate --schedule gpipe --stages 2 --microbatches 2")
    assert answer.out.splitlines() == [
        "schedule        gpipe",
        "makespan        9",
        "bubble          33.3%",
        "peak in flight  2 2",
        "predicted: 36 columns are 9",
        "worker 0 F0--F1--............B1------B0------",
        "worker 1 ....F0--F1--B1------B0------........",
    ]


def test_several_stages_per_worker(call) -> None:
    values = call("simulate --schedule interleaved_one_f_one_b --stages 8 --workers 4 --json").json
    assert values["busy"] == [2 * 8 * 3] * 4


def test_a_plan_with_its_files(call, here: Path) -> None:
    answer = call(f"simulate {OF_PLAN} --out new/step.json --json")
    timeline = load_timeline(here / "new/step.json")
    assert timeline == load_timeline(here / "predicted.json")
    assert answer.json["step_ns"] == timeline.step_ns
    assert answer.json["peak_bytes"] == list(timeline.peak_bytes)


def test_the_text_of_a_plan_has_units(call, here: Path) -> None:
    text = call(f"simulate {OF_PLAN}").out
    step_ns = json.loads((here / "predicted.json").read_text())["end_ns"]
    assert f"step time       {max(step_ns) / 1e6:.3f} ms" in text
    assert "KiB" in text


def test_slices_share_the_times_of_a_microbatch(call, tmp_path: Path) -> None:
    # Seq1F1B with k slices: 8 x 3 and a bubble of (p-1)(tF+tB)/k = 9 / k; worker 0 holds k + p - 1.
    command = "simulate --schedule seq1f1b --stages 4 --microbatches 8 --json --slices"
    for slices, makespan in (1, 33), (2, 28.5), (3, 27), (4, 26.25):
        values = call(f"{command} {slices}").json
        assert values["makespan"] == makespan
        assert values["peak_in_flight"][0] == slices + 3
    file = tmp_path / "order.txt"
    schedule = SCHEDULES["seq1f1b"](ScheduleShape(4, 8, num_slices=3))
    file.write_text(format_schedule(schedule))
    assert call(f"simulate --schedule {file} --json").json["makespan"] == 27


def test_a_plan_of_slices_needs_its_model(call, here: Path) -> None:
    plan = Plan.load("plan.json")
    schedule = SCHEDULES["seq1f1b"](ScheduleShape(2, 4, num_slices=2))
    cut = plan.model_dump() | {"schedule": schedule, "slice_tokens": (5, 3)}
    Plan(**cut).save("plan.json")
    values = call(f"simulate {OF_PLAN} --model model.toml --json").json
    assert values["peak_in_flight"] == [3, 2]
    answer = call(f"simulate {OF_PLAN}")
    assert answer.code == 2
    assert answer.err == (
        "evener: the plan cuts microbatches into slices or spreads the head, and what each part "
        "costs follows from the model; give the model too, on the command line with --model\n"
    )


def test_a_plan_that_offloads_without_sizes_offloads_whole_activations(call, here: Path) -> None:
    schedule = SCHEDULES["gpipe"](ScheduleShape(2, 4))
    moved = insert_offload(schedule, offloadable(schedule))
    plan = Plan.load("plan.json").model_dump() | {"schedule": moved}
    found = []
    for sizes in None, (4096, 4096), (0, 0):  # two layers of 2048 bytes on either stage
        Plan(**plan | {"offload_bytes": sizes}).save("plan.json")
        values = call(f"simulate {OF_PLAN} --json").json
        found.append((values["step_ns"], values["peak_bytes"]))
    assert found[0] == found[1]
    assert found[0][1][0] < found[2][1][0]


def test_schedule_of_another_tool(call, tmp_path):
    # torch's CSV, F 1 and B 2; worker 1: 1 + 2 x 3, then worker 0's last B: 1 + 6 + 2
    file = tmp_path / "order.csv"
    file.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    values = call(f"simulate --schedule {file} --json").json
    assert (values["makespan"], values["peak_in_flight"]) == (9, [2, 1])


def test_the_steady_state_of_amdp_is_its_published_period(call) -> None:
    # One more update of 8 microbatches on 8 workers takes 25, of which 8 x (1 + 2) = 24 are work.
    shape = "simulate --schedule amdp_4 --stages 8 --microbatches 8 --json"
    spans = [call(f"{shape} --updates {updates}").json["makespan"] for updates in (12, 13)]
    assert spans[1] - spans[0] == 25


def test_updates_are_refused_where_a_schedule_flushes(call) -> None:
    assert call("simulate --schedule gpipe --stages 2 --updates 3").err == (
        "evener: gpipe cannot have this shape\n"
        "  gpipe flushes its pipeline at every update, but num_updates is 3; ask for 1, or take an "
        "asynchronous schedule such as pipedream_2bw\n"
    )
