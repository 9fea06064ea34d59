"""Plans as files: what is written reads back, and what is wrong is named, all of it at once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from evener.errors import PlanError
from evener.ir.check import violations
from evener.ir.freezing import Freezing
from evener.ir.plan import Plan, Prediction
from evener.ir.text import format_schedule, parse_schedule
from evener.spec.job import FreezeSpec, JobSpec
from evener.spec.layers import MlpSpec
from evener.spec.model import ModelSpec

MODEL = ModelSpec(
    name="tiny",
    hidden_size=8,
    layer_configs={"mlp": MlpSpec(intermediate_size=16)},
    pattern="3 x mlp",
)
TEXT = "# schedule 1f1b\n# stages 2\n# microbatches 2\n0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n"


def make_plan(**changes: Any) -> Plan:
    facts: dict[str, Any] = {
        "model": MODEL.name,
        "model_fingerprint": MODEL.fingerprint(),
        "layer_names": tuple(layer.name for layer in MODEL.layers),
        "partition": ((0, 1), (1, 3)),
        "devices": (("a0",), ("a1",), ("b0",), ("b1",)),
        "replicas": 2,
        "microbatch_size": 2,
        "sequence_length": 16,
        "job": JobSpec(
            global_batch_sequences=8, sequence_length=16, microbatch_size=2, clip_norm=1.0
        ),
        "tied": ((0, 1),),
        "schedule": parse_schedule(TEXT),
        "predicted": Prediction(
            step_ns=100,
            lower_bound_ns=90,
            peak_bytes=(1, 2, 3, 4),
            bubble_fraction=0.25,
            status="the bound was met",
        ),
    }
    return Plan(**(facts | changes))


def load_changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> str:
    """The message for a saved plan with a change in its JSON, with the path as PLAN."""
    path = folder / "plan.json"
    make_plan().save(path)
    values = json.loads(path.read_text("utf-8"))
    change(values)
    path.write_text(json.dumps(values), "utf-8")
    return refusal(path)


def refusal(path: Path) -> str:
    with pytest.raises(PlanError) as caught:
        Plan.load(path)
    return str(caught.value).replace(str(path), "PLAN")


def test_a_plan_reads_back_and_is_easy_to_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    make_plan().save(path)
    assert Plan.load(path) == make_plan()
    assert '  "0F0 0F1 0B0 0B1",\n' in path.read_text("utf-8")
    make_plan(predicted=None).save(path)
    assert Plan.load(path).predicted is None


def test_the_lowered_schedule_has_all_replicas_and_the_end_of_the_step() -> None:
    plan = make_plan()
    lowered = plan.lowered()
    assert plan.num_workers == lowered.num_workers == 4
    assert format_schedule(lowered).splitlines()[3] == (
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE 0REDUCE>1 0NORM 0STEP"
    )
    assert plan.lowered() is lowered
    job = plan.job.model_copy(update={"clip_norm": None})
    assert "NORM" not in format_schedule(make_plan(job=job).lowered())


def test_a_plan_is_for_one_model() -> None:
    make_plan(tied=()).require_model(MODEL)
    other = MODEL.model_copy(update={"name": "wide", "hidden_size": 16})
    with pytest.raises(PlanError) as caught:
        make_plan().require_model(other)
    assert str(caught.value) == (
        f'the plan is for model "tiny" ({MODEL.fingerprint()[:12]}, 3 layers), but this is model '
        f'"wide" ({other.fingerprint()[:12]}, 3 layers); make a plan for it with `evener plan`'
    )


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert refusal(tmp_path / "plan.json") == (
        "PLAN is not a plan that can be used:\n"
        "  PLAN: cannot be read: No such file or directory; `evener plan` writes a plan"
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            b'{"version": 1,\n "model": "ti',
            (
                ":2: not JSON at column 11: Unterminated string starting at; "
                "`evener plan` writes a plan"
            ),
        ),
        (b"[1]", ": is a list, not an object; `evener plan` writes a plan"),
        (
            b'"\xff"',
            ": is not UTF-8 text: invalid start byte at byte 1; `evener plan` writes a plan",
        ),
        (
            b"{}",
            ": version: is missing, but this Evener reads version 1; `evener plan` writes a plan",
        ),
        (
            b'{"version": 2, "news": 1}',
            ": version: is 2, but this Evener reads version 1; `evener plan` writes a plan",
        ),
        (
            b'{"version": true}',
            ": version: is true, but this Evener reads version 1; `evener plan` writes a plan",
        ),
    ],
)
def test_a_file_that_is_no_plan(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    assert refusal(path) == f"PLAN is not a plan that can be used:\n  PLAN{text}"


def test_unknown_and_missing_keys_and_wrong_types_come_at_once(tmp_path: Path) -> None:
    def change(values: dict[str, Any]) -> None:
        del values["model"]
        values["replcas"] = values.pop("replicas")
        values["microbatch_size"] = 0
        values["job"]["memory_cap_bytes"] = -1
        values["predicted"]["step_ns"] = 1.5
        values["predicted"]["bubble_fraction"] = float("nan")

    assert load_changed(tmp_path, change).splitlines() == [
        "PLAN is not a plan that can be used:",
        "  PLAN: model: is missing and has no default",
        "  PLAN: microbatch_size: 0 should be greater than or equal to 1",
        "  PLAN: job.memory_cap_bytes: -1 should be greater than 0",
        "  PLAN: predicted.step_ns: 1.5 should be a whole number",
        "  PLAN: predicted.bubble_fraction: NaN should be a finite number",
        '  PLAN: replcas: unknown key; did you mean "replicas"?',
    ]


def test_parts_that_do_not_fit_come_at_once(tmp_path: Path) -> None:
    def change(values: dict[str, Any]) -> None:
        values["partition"] = [[0, 2], [1, 2], [2, 2]]
        values["devices"] = [["a0"], ["a0"], []]
        values["tied"] = [[1, 0], [0, 2], [0, 1]]
        values["job"]["microbatch_size"] = 4
        values["job"]["global_batch_sequences"] = 16
        values["sequence_length"] = 8
        values["predicted"]["peak_bytes"] = [1]
        values["schedule"][3] = "0F0 0F1 0B1"

    assert load_changed(tmp_path, change).splitlines() == [
        "PLAN is not a plan that can be used:",
        "  PLAN: partition[1]: stage 1 begins with layer 1, but layer 2 comes next",
        "  PLAN: partition[2]: stage 2 has no layers; give it at least one",
        "  PLAN: partition: ends before layer 2, but there are 3 layer_names; cover each once",
        "  PLAN: partition: has 3 stages, but the schedule has 2; make them equal",
        (
            "  PLAN: devices: are given for 3 workers, but the schedule has 2 in 2 replicas; "
            "give devices for 4"
        ),
        '  PLAN: devices: "a0" is given 2 times; a device is one worker\'s',
        "  PLAN: devices[2]: worker 2 has no device; give it one",
        (
            "  PLAN: schedule: runs 2 microbatches of 2 in 2 replicas = 8 sequences, but the job's "
            "step has 16; make them equal"
        ),
        "  PLAN: microbatch_size: is 2, but the job says 4; make them equal",
        "  PLAN: sequence_length: is 8, but the job says 16; make them equal",
        "  PLAN: schedule: 0B0 is missing: the forward has no backward (B, or I and W)",
        "  PLAN: predicted.peak_bytes: 1 values for 4 workers",
        "  PLAN: tied: [1, 0]: name two of 2 stages, lower first",
        "  PLAN: tied: [0, 2]: name two of 2 stages, lower first",
    ]


def test_a_schedule_that_cannot_be_read(tmp_path: Path) -> None:
    def spoil(values: dict[str, Any]) -> None:
        values["schedule"][4] = "1F0 1Q0"

    assert load_changed(tmp_path, spoil).startswith(
        "PLAN is not a plan that can be used:\n"
        "  PLAN: schedule: line 5, column 5: '1Q0' is not an action: write <stage>"
    )


@pytest.mark.parametrize("value", ["0F0", [1], None])
def test_a_schedule_that_is_not_lines(tmp_path: Path, value: object) -> None:
    assert load_changed(tmp_path, lambda values: values.update(schedule=value)) == (
        "PLAN is not a plan that can be used:\n"
        "  PLAN: schedule: should be a list of lines, the text of a schedule"
    )


def test_a_plan_keeps_compute_actions_only() -> None:
    rows = "0F0 0SEND_F0 0RECV_B0 0B0\n1RECV_F0 1F0 1B0 1SEND_B0\n"
    lowered = parse_schedule(f"# schedule x\n# stages 2\n# microbatches 1\n{rows}")
    with pytest.raises(ValidationError, match="has messages; a plan keeps compute actions only"):
        make_plan(schedule=lowered)


def test_a_plan_with_freezing_reads_back(tmp_path: Path) -> None:
    freezing = Freezing(((0, 1, 2, 3), (250_000, 0, 0, 1_000_000)))
    job = make_plan().job.model_copy(update={"freeze": FreezeSpec()})
    plan = make_plan(job=job, freezing=freezing)
    path = tmp_path / "plan.json"
    plan.save(path)
    assert Plan.load(path) == plan
    assert '  "0 1 2 3",\n' in path.read_text("utf-8")


@pytest.mark.parametrize(
    ("freeze", "freezing", "text"),
    [
        ({}, None, "is missing, but the job has freeze; plan again, or take freeze out of the job"),
        (
            None,
            ["0 0 0 0"] * 2,
            "is given, but the job has no freeze; add it to the job, or plan again",
        ),
        ({}, "0 0", "should be a list of lines, one per stage"),
        (
            {},
            ["0 0 0 0", "0 0 0 x"],
            "stage 1: 'x' is no share; give whole numbers, in parts per million",
        ),
        # 4 microbatches: 2 in each of 2 replicas.
        (
            {},
            ["0 0 0 0", "0 0"],
            "stage 1 has 2 shares, but the step has 4 microbatches; give one each",
        ),
        (
            {"max_share": 0.25},
            ["1000000 0 0 0", "1000000 0 0 4"],
            (
                "stage 1 freezes 250001 parts per million on average, but the job allows 250000; "
                "freeze less, or raise freeze.max_share"
            ),
        ),
    ],
)
def test_freezing_that_does_not_fit_is_refused(
    tmp_path: Path, freeze: Any, freezing: Any, text: str
) -> None:
    def change(values: dict[str, Any]) -> None:
        values["job"]["freeze"] = freeze
        values["freezing"] = freezing

    assert load_changed(tmp_path, change) == (
        f"PLAN is not a plan that can be used:\n  PLAN: freezing: {text}"
    )


CYCLE = tuple(
    parse_schedule(TEXT.replace("1F0 1B0", row)) for row in ("1F0 1X:a0 1B0", "1X:b 1F0 1B0")
)


def test_side_work_takes_turns(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan = make_plan(cycle=CYCLE)
    plan.save(path)
    assert Plan.load(path) == plan
    assert "1X:a0 1B0" in format_schedule(plan.lowered(0))
    assert "1X:a2 1B2" in format_schedule(plan.lowered(2))  # the second replica
    assert "1X:b 1F0" in format_schedule(plan.lowered(3)).replace("1RECV_F0 ", "")
    assert make_plan().steps == (make_plan().schedule,)


def test_a_cycle_differs_by_side_work_only(tmp_path: Path) -> None:
    def change(values: dict[str, Any]) -> None:
        lines = values["schedule"]
        values["cycle"] = [
            [line.replace("0F0 0F1", "0F1 0F0") for line in lines],
            [line.replace("1F0", "1F0 1X:a2") for line in lines],
        ]

    assert load_changed(tmp_path, change) == (
        "PLAN is not a plan that can be used:\n"
        "  PLAN: cycle[0]: step 0 differs from the schedule by more than side work; make them "
        "equal but for X, and write X into the cycle only\n"
        "  PLAN: cycle[1]: worker 1: 1X:a2: microbatches are 0 to 1"
    )


def _none_of(name: str) -> str:
    return (
        f"  PLAN: cycle: has no X:{name}, but the job's side_work has {name}; plan again, or take "
        "it out of the job"
    )


@pytest.mark.parametrize(
    ("placed", "texts"),
    [
        ([], [_none_of("a"), _none_of("b")]),
        (["", ""], [_none_of("a"), _none_of("b")]),
        (
            [" 1X:b", " 1X:c"],
            [
                _none_of("a"),
                (
                    "  PLAN: cycle: has X:c, but the job's side_work has no c; add it to the job, "
                    "or plan again"
                ),
            ],
        ),
    ],
)
def test_the_cycle_has_all_side_work_of_the_job_and_no_other(
    tmp_path: Path, placed: list[str], texts: list[str]
) -> None:
    def change(values: dict[str, Any]) -> None:
        values["job"]["side_work"] = [{"name": name, "time_ns": 1} for name in "ab"]
        lines = values["schedule"]
        values["cycle"] = [[line.replace("1F0", f"1F0{x}") for line in lines] for x in placed]

    assert load_changed(tmp_path, change).splitlines()[1:] == texts


SLICED = (
    "# schedule cut\n# stages 2\n# microbatches 2\n# slices 2\n"
    "0F0.0 0F0.1 0F1.0 0B0.1 0F1.1 0B0.0 0B1.1 0B1.0\n"
    "1F0.0 1F0.1 1B0.1 1F1.0 1B0.0 1F1.1 1B1.1 1B1.0\n"
)


def test_slices_survive_the_file(tmp_path: Path) -> None:
    plan = make_plan(schedule=parse_schedule(SLICED), slice_tokens=(10, 6))
    plan.save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json")
    assert loaded == plan
    assert loaded.slice_tokens == (10, 6)
    assert make_plan().slice_tokens is None


@pytest.mark.parametrize(
    ("schedule", "slice_tokens", "message"),
    [
        (
            SLICED,
            None,
            "is left out, but the schedule cuts microbatches into 2 slices; say how many of the 16",
        ),
        (SLICED, (8, 4, 4), "has 3 slices, but the schedule has 2; make them equal"),
        (SLICED, (8, 4), "add up to 12 tokens, but sequences have 16; make them equal"),
        (TEXT, (16,), "are given, but the schedule cuts nothing; leave them out"),
    ],
)
def test_slices_that_do_not_fit_are_refused(
    schedule: str, slice_tokens: tuple[int, ...] | None, message: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        make_plan(schedule=parse_schedule(schedule), slice_tokens=slice_tokens)
    assert message in str(caught.value)


OFFLOADED = (
    "# schedule away\n# stages 2\n# microbatches 2\n"
    "0F0 0OFFLOAD0 0F1 0FREE0 0RELOAD0 0B0 0B1\n1F0 1B0 1F1 1B1\n"
)


def test_what_is_offloaded_survives_the_file_and_has_a_size_for_every_stage(
    tmp_path: Path,
) -> None:
    plan = make_plan(schedule=parse_schedule(OFFLOADED), offload_bytes=(100, 0))
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    assert make_plan(schedule=parse_schedule(OFFLOADED)).offload_bytes is None
    with pytest.raises(ValidationError) as caught:
        make_plan(schedule=parse_schedule(OFFLOADED), offload_bytes=(100,))
    assert "1 values for 2 stages" in str(caught.value)


@pytest.mark.parametrize(
    ("schedule", "offload_bytes", "text"),
    [
        (
            TEXT,
            [100, 0],
            "offload_bytes: are given, but the schedule offloads nothing; leave them out",
        ),
        (OFFLOADED, [0, -1], "offload_bytes[1]: -1 should be greater than or equal to 0"),
    ],
)
def test_sizes_that_cannot_be_offloaded_are_refused(
    tmp_path: Path, schedule: str, offload_bytes: list[int], text: str
) -> None:
    changes = {"schedule": schedule.splitlines(), "offload_bytes": offload_bytes}
    assert load_changed(tmp_path, lambda values: values.update(changes)) == (
        f"PLAN is not a plan that can be used:\n  PLAN: {text}"
    )


STALE = """# schedule stale
# stages 2
# microbatches 4
# updates 2 stale 1
0F0 0F1 0B0 0F2 0B1 0STEP0 0F3 0B2 0B3 0STEP1
1F0 1B0 1F1 1B1 1STEP0 1F2 1B2 1F3 1B3 1STEP1
"""


def asynchronous_job(updates_per_flush: int | None) -> JobSpec:
    changes = {"asynchronous": True, "updates_per_flush": updates_per_flush}
    return make_plan().job.model_copy(update=changes)


def test_a_plan_of_several_updates_reads_back_and_lowers_as_many_as_are_asked_for(
    tmp_path: Path,
) -> None:
    plan = make_plan(schedule=parse_schedule(STALE), job=asynchronous_job(2))
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    make_plan(schedule=parse_schedule(STALE), job=asynchronous_job(None))  # the plan decides
    # A job may also be run by a schedule that flushes at every update.
    assert make_plan(job=asynchronous_job(2)).schedule.updates.number == 1
    assert '  "# updates 2 stale 1",\n' in (tmp_path / "plan.json").read_text("utf-8")
    # 2 microbatches of each of 2 replicas are one update.
    lowered = plan.lowered()
    assert (lowered.num_microbatches, lowered.update_size) == (8, 4)
    assert plan.lowered(num_updates=2) is lowered
    one = plan.lowered(num_updates=1)
    assert (one.num_microbatches, one.updates.number) == (4, 1)
    assert violations(lowered) == violations(one) == []


@pytest.mark.parametrize(
    ("asks", "text"),
    [
        (
            {},
            (
                "makes 2 updates between two flushes, but the job is not asynchronous; set "
                "asynchronous in the job, or plan again"
            ),
        ),
        (
            {"asynchronous": True, "updates_per_flush": 5},
            (
                "makes 2 updates between two flushes, but the job's updates_per_flush is 5; make "
                "them equal"
            ),
        ),
    ],
)
def test_several_updates_are_those_that_the_job_asks_for(
    tmp_path: Path, asks: dict[str, Any], text: str
) -> None:
    def change(values: dict[str, Any]) -> None:
        values["schedule"] = STALE.splitlines()
        values["job"].update(asks)

    assert load_changed(tmp_path, change) == (
        f"PLAN is not a plan that can be used:\n  PLAN: schedule: {text}"
    )


def test_several_updates_have_the_jobs_batch_each_and_neither_freezing_nor_side_work() -> None:
    with pytest.raises(ValidationError) as caught:
        make_plan(
            schedule=parse_schedule(STALE),
            job=JobSpec(global_batch_sequences=16, sequence_length=16, freeze=FreezeSpec()),
            freezing=Freezing(((0, 0, 0, 0), (0, 0, 0, 0))),
        )
    assert (
        "runs 2 microbatches of 2 in 2 replicas = 8 sequences, but the job's step has 16; make "
        "them equal"
    ) in str(caught.value)
    assert (
        "makes 2 updates between two flushes, but the plan's freezing or cycle is for one; leave "
        "them out, or plan without asynchronous"
    ) in str(caught.value)
