from evener.ir.plan import Plan, Prediction
from evener.report import build_report, summary_of_plan
from evener.schedules import SCHEDULES, one_f_one_b
from evener.schedules.shape import ScheduleShape
from evener.spec.job import JobSpec


def make_plan(predicted: Prediction | None = None) -> Plan:
    return Plan(
        model="tiny",
        model_fingerprint="0" * 64,
        layer_names=("embedding_0", "mlp_1", "mlp_2", "head_3"),
        partition=((0, 3), (3, 4)),
        devices=(("node0/0",), ("node0/1",)),
        microbatch_size=3,
        sequence_length=16,
        job=JobSpec(global_batch_sequences=6, sequence_length=16, microbatch_size=3),
        schedule=one_f_one_b(ScheduleShape(num_workers=2, num_microbatches=2)),
        predicted=predicted,
    )


def test_a_plan_names_its_parts() -> None:
    summary = summary_of_plan(make_plan())
    assert summary.title == "tiny, one_f_one_b"
    assert summary.worker_names == ("node0/0", "node0/1")
    assert summary.stage_names == ("3 layers, embedding_0 to mlp_2", "head_3")
    assert summary.tokens_per_step == 96  # 6 sequences of 16
    assert (summary.status, summary.lower_bound_ns) == ("", None)


def test_a_plan_says_where_it_cuts_sequences() -> None:
    assert "tokens of the slices" not in dict(summary_of_plan(make_plan()).facts)
    cut = SCHEDULES["seq1f1b"](ScheduleShape(2, 2, num_slices=2))
    plan = make_plan().model_copy(update={"schedule": cut, "slice_tokens": (10, 6)})
    assert dict(summary_of_plan(plan).facts)["tokens of the slices"] == "10 6"


def test_a_prediction_brings_the_bound_and_the_sentence(predicted) -> None:
    prediction = Prediction(
        step_ns=11_000,
        lower_bound_ns=10_000,
        peak_bytes=(3, 2),
        bubble_fraction=0.4545,
        status="The best of all.",
    )
    summary = summary_of_plan(make_plan(prediction), title="A plan")
    assert (summary.title, summary.status) == ("A plan", "The best of all.")
    # It fits the timelines of the plan's schedule.
    figures = {f.key: f.predicted for f in build_report(predicted, summary=summary).figures}
    assert figures["lower_bound_ns"] == 10_000
