"""Layout strings and flags: written, read back, and refused where Megatron-LM has no word."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evener.errors import ExportError, PlanError
from evener.export.megatron import Megatron
from evener.export.megatron_layout import LayoutProblem, format_layout, parse_layout
from evener.export.megatron_order import group_sizes, megatron_order
from evener.export.megatron_reader import MegatronReader
from evener.export.parts import StageParts
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action
from evener.schedules import ScheduleShape, interleaved_one_f_one_b, one_f_one_b, zb_h1
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec

FLAGS = {
    "--pipeline-model-parallel-size": "2",
    "--pipeline-model-parallel-layout": "'Et|tL'",
    "--num-layers": "2",
    "--micro-batch-size": "1",
    "--global-batch-size": "4",
    "--seq-length": "8",
}


def reasons(plan: Plan, model: ModelSpec | None) -> list[str]:
    return [str(reason) for reason in Megatron().unsupported(plan, model)]


def read(tmp_path: Path, *, ranks: int | None = 2, **changes: str | None) -> Any:
    flags = {**FLAGS, **{f"--{key.replace('_', '-')}": value for key, value in changes.items()}}
    text = "\n".join(f"{flag} {value}" for flag, value in flags.items() if value is not None)
    path = tmp_path / "flags.sh"
    path.write_text(("" if ranks is None else f"MEGATRON_RANKS={ranks}\n") + text)
    return MegatronReader().read(path)


def refusal(tmp_path: Path, **changes: Any) -> list[str]:
    with pytest.raises(PlanError) as caught:
        read(tmp_path, **changes)
    return list(caught.value.violations)


# The layout string


@st.composite
def all_parts(draw: st.DrawFn) -> tuple[StageParts, ...]:
    counts = draw(st.lists(st.sampled_from([1, 1, 2, 3, 5]), min_size=1, max_size=10))
    # The first and the last stage have work without any block.
    counts[0] -= draw(st.integers(0, 1))
    counts[-1] -= draw(st.integers(0, 1)) if counts[-1] else 0
    last = len(counts) - 1
    return tuple(StageParts(i == 0, count, i == last) for i, count in enumerate(counts))


@given(all_parts())
def test_layouts_round_trip(parts: tuple[StageParts, ...]) -> None:
    assert parse_layout(format_layout(parts)) == parts


def test_layout_of_an_uneven_model() -> None:
    # Megatron-LM's own example is "Et*3|(tt|)*29,m|L"; without the MTP layer it ends in 29 pairs.
    parts = parse_layout("Et*3|(tt|)*29,L")
    assert [part.num_blocks for part in parts] == [3, *[2] * 29, 0]
    assert format_layout(parts) == "Et*3|(tt|)*29L"
    assert parse_layout("Ettt|(tt|)*28tt|L") == parts


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ("Et*3|(tt|)*29,m|L", "m: layers for multi-token prediction are not part of a plan"),
        ("Et||tL", "stage 1 is empty: a stage of a plan has at least one layer"),
        ("Et|t", "it begins with 'E', ends with 't' and has 1 E and 0 L"),
        ("t|EL", "it begins with 't', ends with 'L' and has 1 E and 1 L"),
        ("Et|EtL", "it begins with 'E', ends with 'L' and has 2 E and 1 L"),
        ("Et|(tt|)L", "'(tt|)L' is not a layout"),
        ("Et|((t)*2|)*2L", "'((t)*2|)*2L' is not a layout"),
        ("Et |tL", "' |tL' is not a layout"),
        ("Et*999999999|L", "more than 100000 letters"),
        ("Et*9999999999999999999|L", "999999999... is a number of 19 digits: write at most 18"),
    ],
)
def test_what_is_no_layout_of_a_plan(layout: str, text: str) -> None:
    with pytest.raises(LayoutProblem) as caught:
        parse_layout(layout)
    assert str(caught.value).startswith(text)


# The order of work


@pytest.mark.parametrize(("num_workers", "num_microbatches"), [(1, 3), (2, 1), (3, 2), (4, 8)])
def test_one_f_one_b_is_ours(num_workers: int, num_microbatches: int) -> None:
    ours = one_f_one_b(ScheduleShape(num_workers, num_microbatches))
    assert megatron_order(num_workers, num_microbatches) == ours


@pytest.mark.parametrize("num_microbatches", [4, 8, 9, 11])
def test_interleaved_is_ours(num_microbatches: int) -> None:
    # 9 are dealt to 5 + 4, and 11 to 6 + 5: no group is smaller than the 4 ranks.
    size = {4: 4, 8: 4, 9: 5, 11: 6}[num_microbatches]
    assert size in group_sizes(4, num_microbatches)
    ours = interleaved_one_f_one_b(ScheduleShape(4, num_microbatches, 2))
    assert megatron_order(4, num_microbatches, num_chunks=2, group_size=size) == ours


def test_group_sizes_leave_no_group_smaller_than_the_ranks() -> None:
    # Of 11: 4+4+3 and 5+5+1 have a short group; 6+5, 7+4, and all at once do not.
    assert group_sizes(4, 11) == [6, 7, 11]
    assert group_sizes(4, 3) == []


# Flags


def test_golden_file(make_plan: Any, make_model: Any, tmp_path: Path) -> None:
    plan = make_plan(one_f_one_b(ScheduleShape(2, 4)), model=make_model(3), cuts=(3,), replicas=2)
    Megatron().write(plan, tmp_path / "plan.sh", make_model(3))
    assert (tmp_path / "plan.sh").read_text(encoding="utf-8") == (
        "# tiny by one_f_one_b, written by evener\n"
        "# rank 0: node0/0\n"
        "# rank 1: node0/2\n"
        "# rank 2: node0/1\n"
        "# rank 3: node0/3\n"
        "MEGATRON_RANKS=4\n"
        "MEGATRON_ARGS=(\n"
        "    --pipeline-model-parallel-size 2\n"
        "    --pipeline-model-parallel-layout 'Et|ttL'\n"
        "    --num-layers 3\n"
        "    --untie-embeddings-and-output-weights\n"
        "    --micro-batch-size 1\n"
        "    --global-batch-size 8\n"
        "    --seq-length 8\n"
        ")\n"
    )


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_plans_round_trip(
    data: st.DataObject, make_plan: Any, make_model: Any, tmp_path_factory: Any
) -> None:
    ranks, chunks = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    chunks = chunks if ranks > 1 else 1
    num_microbatches = data.draw(st.integers(ranks if chunks > 1 else 1, 9))
    sizes = group_sizes(ranks, num_microbatches) if chunks > 1 else [ranks]
    schedule = megatron_order(
        ranks, num_microbatches, num_chunks=chunks, group_size=data.draw(st.sampled_from(sizes))
    )
    num_blocks = data.draw(st.integers(max(1, schedule.num_stages - 2), 14))
    places = st.lists(
        st.integers(0, num_blocks),
        min_size=schedule.num_stages - 1,
        max_size=schedule.num_stages - 1,
        unique=True,
    )
    # Block b begins with layer 1 + 2 b: attention, then feed-forward; after the last is the head.
    cuts = tuple(1 + 2 * block for block in sorted(data.draw(places)))
    model = make_model(num_blocks, tied=data.draw(st.booleans()))
    plan = make_plan(schedule, model=model, cuts=cuts, replicas=data.draw(st.integers(1, 3)))
    path = tmp_path_factory.mktemp("megatron") / "plan.sh"
    Megatron().write(plan, path, model)
    imported = MegatronReader().read(path)
    devices = [device for (device,) in plan.devices]
    again = imported.plan(model, devices=devices, job=JobSpec())
    assert again.model_copy(update={"job": plan.job}) == plan
    assert again.job.num_sequences == plan.job.num_sequences


def test_a_plan_is_not_for_any_model(make_plan: Any, make_model: Any, tmp_path: Path) -> None:
    plan = make_plan(one_f_one_b(ScheduleShape(2, 4)), model=make_model(3), cuts=(3,))
    Megatron().write(plan, tmp_path / "plan.sh", make_model(3))
    imported = MegatronReader().read(tmp_path / "plan.sh")
    with pytest.raises(PlanError, match='the file has 3 blocks, but model "tiny" has 4'):
        imported.plan(make_model(4), devices=["a", "b"], job=JobSpec())
    with pytest.raises(PlanError, match="shares the matrix of embedding and head, the file does"):
        imported.plan(make_model(3, tied=True), devices=["a", "b"], job=JobSpec())
    with pytest.raises(PlanError, match="1 devices for 2 workers in 1 replicas: give one for each"):
        imported.plan(make_model(3), devices=["a"], job=JobSpec())
    assert reasons(plan, None) == [
        "a plan names its layers, but not their kinds: give the model, too (`--model FILE`)"
    ]


def test_stages_are_dealt_evenly_without_a_layout(tmp_path: Path) -> None:
    even = {"pipeline_model_parallel_layout": None, "num_layers": "8"}
    assert [part.num_blocks for part in read(tmp_path, **even).parts] == [4, 4]
    for flag in ("num_virtual_stages_per_pipeline_rank", "num_layers_per_virtual_pipeline_stage"):
        imported = read(tmp_path, **even, **{flag: "2"})
        assert [part.num_blocks for part in imported.parts] == [2, 2, 2, 2]
        assert imported.schedule == megatron_order(2, 4, num_chunks=2)


def test_what_flags_are_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, ranks=None) == [
        (
            "no line MEGATRON_RANKS=...: data parallelism is what ranks are left over, so say how "
            "many there are"
        )
    ]
    assert refusal(tmp_path, ranks=3) == [
        "3 ranks are no multiple of --pipeline-model-parallel-size 2"
    ]
    assert refusal(tmp_path, global_batch_size="$GBS", seq_length=None) == [
        "--global-batch-size '$GBS': write a whole number of at least 1",
        "--seq-length is missing: write a whole number of at least 1",
    ]
    assert refusal(tmp_path, global_batch_size="5", micro_batch_size="2") == [
        "--global-batch-size 5 is no multiple of --micro-batch-size 2 times 1 replicas"
    ]
    assert refusal(tmp_path, ranks="9" * 5000, num_layers="9" * 5000) == [
        "MEGATRON_RANKS: 999999999... is a number of 5000 digits: write at most 18",
        "--num-layers: 999999999... is a number of 5000 digits: write at most 18",
        "the layout has 2 blocks, but --num-layers 1",
    ]
    assert refusal(tmp_path, num_layers="3") == ["the layout has 2 blocks, but --num-layers 3"]
    assert refusal(tmp_path, pipeline_model_parallel_layout="Et|t|L") == [
        "the layout has 3 stages, no multiple of --pipeline-model-parallel-size 2"
    ]
    assert refusal(tmp_path, pipeline_model_parallel_layout=None, num_layers="3") == [
        (
            "--num-layers 3 cannot be dealt evenly to 2 stages on 2 ranks: state the stages by a "
            "layout string"
        )
    ]
    assert refusal(tmp_path, tensor_model_parallel_size="2", mtp_num_layers="1") == [
        "--mtp-num-layers is not read: state the stages by a layout string",
        "--tensor-model-parallel-size: a worker of a plan is one device; set it to 1",
    ]
    assert refusal(tmp_path, pipeline_model_parallel_layout="'E|t|t|L'", global_batch_size="3") == [
        (
            "3 microbatches in groups of 2: Megatron-LM interleaves on several ranks only, in "
            "groups that all have at least 2"
        )
    ]


# What Megatron-LM cannot express


def rows(*texts: str) -> tuple[Any, ...]:
    return tuple(tuple(parse_action(token) for token in text.split()) for text in texts)


def test_v_shaped_placements_are_refused(make_plan: Any, make_model: Any) -> None:
    workers = rows("0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0")
    plan = make_plan(Schedule("v", 4, 1, workers), model=make_model(4), cuts=(3, 5, 7))
    assert reasons(plan, make_model(4)) == [
        (
            "stage 2 is on worker 1: Megatron-LM has it on rank 0, the stage's number modulo the "
            "number of ranks, so that it has no V-shaped placements; plan with a looped one"
        )
    ]


def test_different_numbers_of_stages_are_refused(make_plan: Any, make_model: Any) -> None:
    workers = rows("0F0 2F0 2B0 0B0", "1F0 1B0")
    plan = make_plan(Schedule("uneven", 3, 1, workers), model=make_model(3), cuts=(3, 5))
    assert reasons(plan, make_model(3)) == [
        (
            "worker 0 holds 2 stages and worker 1 holds 1: Megatron-LM gives every rank the same "
            "number; plan with equal numbers"
        )
    ]


def test_other_schedules_are_refused(make_plan: Any, make_model: Any) -> None:
    plan = make_plan(zb_h1(ScheduleShape(2, 4)), model=make_model(2), cuts=(3,))
    assert reasons(plan, make_model(2)) == [
        (
            "worker 0 runs 0I0 where 1F1B runs 0B0: Megatron-LM has 1F1B and interleaved 1F1B "
            "only; plan with one of them"
        )
    ]
    # 13 = 5 + 4 + 4 here; groups of 5 leave 3 over, which is less than 4 ranks.
    schedule = interleaved_one_f_one_b(ScheduleShape(4, 13, 2))
    cuts = tuple(range(3, 17, 2))
    (reason,) = reasons(make_plan(schedule, model=make_model(8), cuts=cuts), make_model(8))
    assert reason.startswith("worker 0 runs 0F4 where interleaved 1F1B runs 4F0")
    # As many groups as there can be, but less than one group of microbatches.
    schedule = megatron_order(2, 1, num_chunks=2)
    (reason,) = reasons(make_plan(schedule, model=make_model(4), cuts=(3, 5, 7)), make_model(4))
    assert reason.startswith(
        "1 microbatches on 2 ranks with 2 stages each: Megatron-LM interleaves"
    )


def test_a_cut_inside_a_block_is_refused(make_plan: Any, make_model: Any) -> None:
    plan = make_plan(one_f_one_b(ScheduleShape(2, 4)), model=make_model(2), cuts=(2,))
    assert reasons(plan, make_model(2)) == [
        (
            "stage 1 begins with mlp_2, inside a transformer block: Megatron-LM holds a block on "
            "one stage; move the cut by one layer"
        )
    ]


def test_models_without_blocks_are_refused(make_plan: Any, make_model: Any, tmp_path: Path) -> None:
    model = make_model(1, pattern="attention mlp mlp")
    plan = make_plan(one_f_one_b(ScheduleShape(1, 1)), model=model, cuts=())
    assert reasons(plan, model) == [
        (
            "the model begins with attention_0: Megatron-LM has models from an embedding to a head "
            "only"
        ),
        "the model ends with mlp_2: Megatron-LM has models from an embedding to a head only",
    ]
    model = make_model(1, pattern="embedding attention mlp mlp head")
    plan = make_plan(one_f_one_b(ScheduleShape(1, 1)), model=model, cuts=())
    with pytest.raises(
        ExportError, match=r"layer mlp_3 \(mlp\) is not part of a transformer block"
    ):
        Megatron().write(plan, tmp_path / "plan.sh", model)


def test_blocks_that_differ_are_refused(make_plan: Any) -> None:
    # Megatron-LM has one set of flags for all blocks: the second one's width would be lost
    attention = {"kind": "attention", "num_heads": 1, "head_dim": 4}
    model = ModelSpec.model_validate(
        {
            "name": "uneven",
            "hidden_size": 4,
            "vocabulary_size": 8,
            "pattern": "embedding attention mlp attention wide head",
            "layer": {
                "embedding": {"kind": "embedding"},
                "attention": attention,
                "mlp": {"kind": "mlp", "intermediate_size": 8},
                "wide": {"kind": "mlp", "intermediate_size": 32},
                "head": {"kind": "head"},
            },
        }
    )
    plan = make_plan(one_f_one_b(ScheduleShape(2, 4)), model=model, cuts=(3,))
    (reason,) = reasons(plan, model)
    assert reason == (
        "the feed-forward layers mlp, wide differ: Megatron-LM builds every block from the same "
        "flags; plan a model of equal blocks, or run this one here"
    )
