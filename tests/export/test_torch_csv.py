"""What is written is what the installed torch reads; what it cannot say is refused by name."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evener.errors import ExportError
from evener.export import TorchCsv, read_schedule
from evener.export.registry import EXPORTERS
from evener.ir.action import Action, Kind
from evener.ir.freezing import Freezing
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action
from evener.schedules import SCHEDULES as REGISTERED
from evener.schedules import one_f_one_b, zb_h1
from evener.schedules.shape import ScheduleShape

SCHEDULES = {
    "one_f_one_b": one_f_one_b(ScheduleShape(num_workers=3, num_microbatches=4)),
    "zb_h1": zb_h1(ScheduleShape(num_workers=3, num_microbatches=5)),
}


def rows(*texts: str) -> tuple[tuple[Action, ...], ...]:
    return tuple(tuple(parse_action(token) for token in text.split()) for text in texts)


def reasons(plan: Plan) -> list[str]:
    return [str(reason) for reason in TorchCsv().unsupported(plan)]


def test_golden_file(make_plan, tmp_path: Path) -> None:
    plan = make_plan(one_f_one_b(ScheduleShape(num_workers=2, num_microbatches=3)))
    TorchCsv().write(plan, tmp_path / "schedule.csv")
    # Worker 0 runs one forward more before its first backward than worker 1.
    assert (tmp_path / "schedule.csv").read_text(encoding="utf-8") == (
        "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"
    )


SHAPES = [ScheduleShape(*sizes) for sizes in ((2, 4), (3, 5), (4, 3), (2, 4, 2), (4, 8), (4, 8, 2))]
FORMS = ("compute_only", "compute_comms")


def load(schedule: Schedule, path: Path, form: str) -> Any:
    """What torch's runtime makes of a file; raises for what it could not run."""
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    # torch asks a stage for no more than its place until tensors flow.
    stage = SimpleNamespace(
        num_stages=schedule.num_stages,
        group_size=schedule.num_workers,
        group_rank=0,
        is_first=True,
        is_last=False,
        has_backward=True,
        stage_index=0,
        submod=None,
    )
    runtime: Any = _PipelineScheduleRuntime([stage], schedule.num_microbatches)
    runtime._load_csv(str(path), format=form)
    return runtime


@pytest.mark.parametrize("name", REGISTERED)
def test_torch_reads_every_action_back(name: str, make_plan: Any, tmp_path: Path) -> None:
    entry = REGISTERED[name]
    schedules = [entry(shape) for shape in SHAPES if entry.unsupported(shape) is None]
    for schedule in schedules:
        plan = make_plan(schedule)
        if any(len(workers) > 1 for workers in schedule.workers_of_stage):
            assert reasons(plan)[0].startswith("stage 0 is on workers")
            continue
        for form in FORMS:
            path = tmp_path / f"{form}.csv"
            TorchCsv(messages=form == "compute_comms").write(plan, path)
            runtime = load(schedule, path, form)
            assert runtime.stage_index_to_group_rank == {
                stage: workers[0] for stage, workers in enumerate(schedule.workers_of_stage)
            }
            # All messages are there, ours or those that torch derives by replaying the order.
            crossing = sum(
                schedule.workers_of_stage[stage] != schedule.workers_of_stage[stage + 1]
                for stage in range(schedule.num_stages - 1)
            )
            rows = runtime.pipeline_order_with_comms
            loaded = [[str(action) for action in rows[rank]] for rank in sorted(rows)]
            num_messages = sum("SEND" in text or "RECV" in text for row in loaded for text in row)
            assert num_messages == 4 * crossing * schedule.num_microbatches
            assert read_schedule(path).workers == schedule.workers
            words = path.read_text(encoding="utf-8").splitlines()
            in_file = loaded if form == "compute_comms" else runtime.pipeline_order.values()
            assert [",".join(map(str, row)) for row in in_file] == words
    assert schedules


def test_golden_file_with_messages(make_plan: Any, tmp_path: Path) -> None:
    plan = make_plan(one_f_one_b(ScheduleShape(num_workers=2, num_microbatches=1)))
    TorchCsv(messages=True).write(plan, tmp_path / "schedule.csv")
    assert (tmp_path / "schedule.csv").read_text(encoding="utf-8") == (
        "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
        "1UNSHARD,1RECV_F0,1F0,1B0,1REDUCE_GRAD,1SEND_B0,1RESHARD\n"
    )


def test_workers_without_work_are_refused(make_plan: Any) -> None:
    (reason,) = reasons(make_plan(Schedule("idle", 1, 1, (*rows("0F0 0B0"), ()))))
    assert reason.startswith("worker 1 has no work: torch has no ranks without a stage")


def test_replicas_are_refused(make_plan) -> None:
    (reason,) = reasons(make_plan(SCHEDULES["zb_h1"], replicas=2))
    assert reason == (
        "2 replicas: the file is of one pipeline; export the plan with replicas = 1 and replicate "
        "it over a data-parallel mesh"
    )


def test_tied_parameters_are_refused(make_plan) -> None:
    (reason,) = reasons(make_plan(SCHEDULES["one_f_one_b"], tied=((0, 2),)))
    assert reason.startswith("stages 0 and 2 share parameters: torch would leave each with its own")


def test_a_stage_on_two_workers_is_refused(make_plan) -> None:
    workers = rows("0F0 0B0", "0F1 0B1", "1F0 1B0 1F1 1B1")
    (reason,) = reasons(make_plan(Schedule("wide", 2, 2, workers)))
    assert reason.startswith("stage 0 is on workers 0, 1: torch holds every stage on one rank")


def test_actions_that_the_file_has_no_word_for_are_refused(make_plan) -> None:
    workers = rows("0F0 0F1 0R0 0B0 0R1 0B1", "1F0 1B0 1F1 1B1")
    side = (*workers[1], Action(1, Kind.X, name="shampoo"))
    assert reasons(make_plan(Schedule("recomputed", 2, 2, (workers[0], side)))) == [
        "2 R actions, the first is 0R0: the file knows F, B, I, W only; plan without R",
        "1 X actions, the first is 1X:shampoo: the file knows F, B, I, W only; plan without X",
    ]


def test_slices_are_refused(make_plan) -> None:
    workers = rows("0F0.0 0F0.1 0B0.1 0B0.0", "1F0.0 1F0.1 1B0.1 1B0.0")
    (reason,) = reasons(make_plan(Schedule("sliced", 2, 1, workers, num_slices=2)))
    assert reason.startswith("2 token slices per microbatch")


def test_side_work_is_refused_by_every_format(make_plan, make_model) -> None:
    plan = make_plan(one_f_one_b(ScheduleShape(2, 2)), model=make_model(1), cuts=(2,))
    first, second = plan.schedule.workers
    filled = replace(plan.schedule, workers=(first, (*second, Action(1, Kind.X, name="shampoo"))))
    busy = plan.with_cycle([filled])
    for exporter in EXPORTERS.values():
        new = {r.text for r in exporter.unsupported(busy, make_model(1))}
        new -= {r.text for r in exporter.unsupported(plan, make_model(1))}
        system = "Megatron-LM" if exporter.target.startswith("Megatron") else "torch"
        assert new == {
            (
                f"the plan has side work in its bubbles: {system} has no word for it; plan a job "
                "without side_work"
            )
        }


def test_freezing_is_refused_by_every_format(make_plan, make_model) -> None:
    plan = make_plan(one_f_one_b(ScheduleShape(2, 2)), model=make_model(1), cuts=(2,))
    frozen = plan.model_copy(update={"freezing": Freezing(((0, 1), (0, 0)))})
    for exporter in EXPORTERS.values():
        new = {r.text for r in exporter.unsupported(frozen, make_model(1))}
        new -= {r.text for r in exporter.unsupported(plan, make_model(1))}
        system = "Megatron-LM" if exporter.target.startswith("Megatron") else "torch"
        assert new == {
            (
                f"the plan freezes parameters of some microbatches: {system} has no word for it; "
                "plan a job without freeze"
            )
        }


def test_several_updates_are_refused_by_every_format(make_plan, make_model) -> None:
    schedule = REGISTERED["pipedream_2bw"](ScheduleShape(2, 2, num_updates=3))
    plan = make_plan(schedule, model=make_model(1), cuts=(2,))
    for exporter in EXPORTERS.values():
        system = "Megatron-LM" if exporter.target.startswith("Megatron") else "torch"
        assert (
            f"3 updates without a flush between them: {system} makes one update per step; plan a "
            "job without asynchronous"
        ) in {reason.text for reason in exporter.unsupported(plan, make_model(1))}


def test_a_stage_graph_is_refused(make_plan) -> None:
    # Stages 0 and 1 both feed stage 2: the edge 0-1 of the chain is absent, 0-2 is added.
    workers = rows("0F0 0B0", "1F0 1B0", "2F0 2B0")
    schedule = Schedule("joined", 3, 1, workers, edges=((0, 2), (1, 2)))
    found = reasons(make_plan(schedule))
    assert [text.split(":")[0] for text in found] == [
        "the stages are not a chain, see 0 to 1",
        "the stages are not a chain, see 0 to 2",
    ]


def test_losses_out_of_order_are_refused(make_plan) -> None:
    workers = rows("0F1 0F0 0B1 0B0", "1F1 1F0 1B1 1B0")
    (reason,) = reasons(make_plan(Schedule("reversed", 2, 2, workers)))
    assert reason.startswith("the last stage runs microbatch 1 where 0 is due: torch stores losses")


def test_all_reasons_come_at_once_and_nothing_is_written(make_plan, tmp_path: Path) -> None:
    plan = make_plan(SCHEDULES["one_f_one_b"], replicas=2, tied=((0, 2),))
    with pytest.raises(ExportError) as caught:
        TorchCsv().write(plan, tmp_path / "schedule.csv")
    assert str(caught.value).startswith(
        "torch's schedule CSV cannot express this plan (one_f_one_b of tiny):\n  2 replicas: "
    )
    assert len(caught.value.violations) == 2
    assert not (tmp_path / "schedule.csv").exists()
