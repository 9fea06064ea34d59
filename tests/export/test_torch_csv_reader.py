"""Foreign schedules are read to the last letter and proven before anything runs."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evener.errors import ScheduleError
from evener.executor.verify import Case, verify_cases
from evener.export import read_schedule
from evener.ir.text import format_schedule
from evener.schedules import ScheduleShape, one_f_one_b

WriteCsv = Callable[[str], Path]


@pytest.fixture
def write_csv(tmp_path: Path) -> WriteCsv:
    def write(text: str) -> Path:
        path = tmp_path / "foreign.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def refusal(path: Path) -> list[str]:
    with pytest.raises(ScheduleError) as caught:
        read_schedule(path)
    assert caught.value.header == f"{path} is not a schedule that can run"
    return list(caught.value.violations)


def rows_of(path: Path, **options: bool) -> list[str]:
    schedule = read_schedule(path, **options)
    return [" ".join(map(str, actions)) for actions in schedule.workers]


# What the cells may hold


def test_waits_mean_nothing_and_rows_may_differ_in_length(write_csv: WriteCsv) -> None:
    path = write_csv("0F0,0F1,None,,0B0,None,0B1\n,1F0, 1B0 ,1F1,1B1\n")
    assert rows_of(path) == ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]


def test_overlapped_actions_run_in_sequence(write_csv: WriteCsv) -> None:
    # Two stages on one rank: the second forward overlaps with the first backward.
    path = write_csv("0F0,1F0,0F1,(1F1;1B0)OVERLAP_F_B,0B0,1B1,0B1\n")
    assert rows_of(path) == ["0F0 1F0 0F1 1F1 1B0 0B0 1B1 0B1"]


def test_stages_belong_to_who_runs_them(write_csv: WriteCsv) -> None:
    # Stage 0 is on the second rank, and both others on the first.
    path = write_csv("1F0,2F0,2I0,1I0,2W0,1W0\n0F0,0B0\n")
    assert read_schedule(path).stages_of_worker == ((1, 2), (0,))


def test_what_data_parallelism_adds_is_proven_and_left_out(write_csv: WriteCsv) -> None:
    path = write_csv(
        "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
        "1UNSHARD,1RECV_F0,1F0,1B0,1REDUCE_GRAD,1SEND_B0,1RESHARD\n"
    )
    assert rows_of(path) == ["0F0 0B0", "1F0 1B0"]
    with_messages = ["0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0"]
    assert rows_of(path, keep_messages=True) == with_messages


def test_our_own_text_is_read_too(tmp_path: Path) -> None:
    schedule = one_f_one_b(ScheduleShape(num_workers=2, num_microbatches=3))
    path = tmp_path / "schedule.txt"
    path.write_text(format_schedule(schedule), encoding="utf-8")
    assert read_schedule(path) == schedule


# What is refused


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (
            "0F0garbage",
            "'0F0garbage' is not an action: write <stage><kind><microbatch>, such as 2F0",
        ),
        ("0F", "'0F' has no microbatch: write which one, such as 0F0"),
        ("0X0", "'0X0' is not an action: write <stage><kind><microbatch>, such as 2F0"),
        ("-1F0", "'-1F0' is not an action: write <stage><kind><microbatch>, such as 2F0"),
        ("0UNSHARD1", "'0UNSHARD1': UNSHARD acts on a whole stage: write 0UNSHARD"),
        (
            "(0F0;0SEND_F0)OVERLAP_F_B",
            "0SEND_F0 is not computed, so nothing can overlap with it: give it a cell of its own",
        ),
        (
            "(0F0;)OVERLAP_F_B",
            "'' is not an action: write <stage><kind><microbatch>, such as 2F0",
        ),
    ],
)
def test_cells_are_read_to_their_end(cell: str, text: str, write_csv: WriteCsv) -> None:
    assert refusal(write_csv(f"0F0,{cell},0B0\n")) == [f"line 1, cell 2: {text}"]


def test_a_row_without_work_is_refused(write_csv: WriteCsv) -> None:
    assert refusal(write_csv("0F0,0B0\nNone,\n")) == [
        "line 2: no action: every row is a rank with work; remove the line"
    ]
    assert refusal(write_csv("")) == ["there is no row: write one for each rank"]


def test_a_huge_index_does_not_make_a_huge_schedule(write_csv: WriteCsv) -> None:
    assert refusal(write_csv("0F0,0B0,0F999999999,0B999999999\n")) == [
        "microbatch 1 does not occur, but microbatch 999999999 does: number from 0 on"
    ]


def test_an_index_of_thousands_of_digits_is_refused(write_csv: WriteCsv) -> None:
    digits = "9" * 5000
    assert refusal(write_csv(f"0F0,{digits}F0,0F{digits}\n")) == [
        f"line 1, cell {cell}: 999999999... is a number of 5000 digits: write at most 18"
        for cell in (2, 3)
    ]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match=r"absent\.csv cannot be read\n.*No such file"):
        read_schedule(tmp_path / "absent.csv")


def test_a_reduction_before_the_last_gradient_is_refused(write_csv: WriteCsv) -> None:
    path = write_csv("0F0,0F1,0B0,0REDUCE_GRAD,0B1\n")
    (text,) = refusal(path)
    assert text == (
        "worker 0: 0REDUCE_GRAD stands before 0B1, whose gradient would be left out: move it "
        "behind 0B1"
    )


def test_violations_speak_the_words_of_the_file(write_csv: WriteCsv) -> None:
    path = write_csv("0UNSHARD,0F0,0RESHARD,0B0\n")
    assert refusal(path) == ["worker 0: 0B0 uses parameters that are not gathered"]
    path = write_csv("0UNSHARD,0UNSHARD,0F0,0B0,0RESHARD\n")
    assert refusal(path) == ["worker 0: 0UNSHARD comes twice without a RESHARD between"]


def test_a_schedule_that_is_off_by_one_is_refused(write_csv: WriteCsv) -> None:
    """The order that torch draws for 1F1B on 2 ranks: the last one counts forwards from 1."""
    from torch.distributed.pipelining import Schedule1F1B

    drawn: Any = Schedule1F1B(_stage(1, 2, 2), 2).pipeline_order
    path = write_csv("".join(",".join(map(str, drawn[rank])) + "\n" for rank in drawn))
    assert path.read_text(encoding="utf-8") == (
        "0F0,0F1,0B0,0B1,0REDUCE_GRAD\n1F1,1B0,1F2,1B1,1REDUCE_GRAD\n"
    )
    assert refusal(path) == [
        "0F2 is missing: every stage runs every microbatch once",
        "0B2 is missing: the forward has no backward (B, or I and W)",
        "1F0 is missing: every stage runs every microbatch once",
        "1B2 is missing: the forward has no backward (B, or I and W)",
    ]


@pytest.mark.parametrize(
    "first_row",
    [
        # torch loads it (compute_comms), and waits until the process group's time-out.
        "0F0,0RECV_B0,0B0,0SEND_F0",
        # Runs over gloo, whose messages pass one another, and not where a pair keeps its order.
        "0F0,0RECV_B0,0SEND_F0,0B0",
    ],
)
def test_messages_that_wait_for_one_another_are_refused(
    first_row: str, write_csv: WriteCsv
) -> None:
    path = write_csv(f"{first_row}\n1RECV_F0,1F0,1B0,1SEND_B0\n")
    (text,) = refusal(path)
    assert text == (
        "deadlock, each waits for the next and the last for the first:\n"
        "      worker 1 cannot send 1SEND_B0 (worker 0: 0RECV_B0) before it has received 1RECV_F0 "
        "(worker 0: 0SEND_F0), which its list has before it\n"
        "      worker 0 cannot send 0SEND_F0 (worker 1: 1RECV_F0) before it has received 0RECV_B0 "
        "(worker 1: 1SEND_B0), which its list has before it\n"
        "      move one of these in its worker's list"
    )


# torch's own schedules


CHUNKS = {"Interleaved1F1B": 2, "InterleavedZeroBubble": 2, "ZBVZeroBubble": 2, "DualPipeV": 2}
V_SHAPED = ("ZBVZeroBubble", "DualPipeV")
SHAPES = [(2, 4), (4, 8)]


def _stage(stage: int, num_stages: int, num_workers: int, **methods: Any) -> Any:
    """A stage as far as torch's schedules ask it for its place."""
    return SimpleNamespace(
        num_stages=num_stages,
        group_size=num_workers,
        group_rank=stage % num_workers,
        is_first=stage == 0,
        is_last=stage == num_stages - 1,
        has_backward=True,
        stage_index=stage,
        submod=None,
        **methods,
    )


def _dump(name: str, num_workers: int, num_microbatches: int, path: Path, form: str) -> Path:
    """Have torch write the order of one of its schedules."""
    from torch.distributed.pipelining.schedules import get_schedule_class

    num_stages = CHUNKS[name] * num_workers
    second = num_stages - 1 if name in V_SHAPED else num_workers
    stages = [_stage(stage, num_stages, num_workers) for stage in (0, second)]
    schedule: Any = get_schedule_class(name)(stages, num_microbatches, loss_fn=lambda *_: None)
    schedule._dump_csv(str(path), format=form)
    return path


def _record_1f1b(num_workers: int, num_microbatches: int, path: Path) -> Path:
    """Write the calls that ``Schedule1F1B`` makes: the order that it draws is another one."""
    from torch.distributed.pipelining import Schedule1F1B

    rows = []
    for rank in range(num_workers):
        calls: list[str] = []
        names = ("get_fwd_recv_ops", "get_fwd_send_ops", "get_bwd_recv_ops", "get_bwd_send_ops")
        stage = _stage(
            rank,
            num_workers,
            num_workers,
            forward_one_chunk=lambda m, *_, calls=calls, rank=rank, **__: calls.append(
                f"{rank}F{m}"
            ),
            backward_one_chunk=lambda m, *, calls=calls, rank=rank, **__: calls.append(
                f"{rank}B{m}"
            ),
            perform_reduce_grad=lambda _: None,
            **dict.fromkeys(names, lambda _: []),
        )
        schedule: Any = Schedule1F1B(stage, num_microbatches)
        schedule._initialize_stage = lambda *_: None
        schedule._step_microbatches()
        rows.append(",".join(calls))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(("num_workers", "num_microbatches"), SHAPES)
@pytest.mark.parametrize("name", CHUNKS)
def test_schedules_of_torch_are_read(
    name: str, num_workers: int, num_microbatches: int, tmp_path: Path
) -> None:
    size = (num_workers, num_microbatches)
    plain = read_schedule(_dump(name, *size, tmp_path / "plain.csv", "compute_only"))
    num_stages = CHUNKS[name] * num_workers
    assert (plain.num_stages, plain.num_microbatches) == (num_stages, num_microbatches)
    for worker, stages in enumerate(plain.stages_of_worker):
        second = num_stages - 1 - worker if name in V_SHAPED else num_workers + worker
        assert stages == (worker, second)
    # With torch's messages, which it orders by a replay: legal in our sense, too.
    path = _dump(name, *size, tmp_path / "messages.csv", "compute_comms")
    assert read_schedule(path).workers == plain.workers
    crossing = (
        num_stages - 1 - (name in V_SHAPED)
    )  # the two stages at the turn of a V are neighbours
    messages = read_schedule(path, keep_messages=True).num_actions - plain.num_actions
    assert messages == 4 * crossing * num_microbatches


@pytest.mark.parametrize(("num_workers", "num_microbatches"), SHAPES)
def test_what_torch_runs_as_1f1b_is_ours(
    num_workers: int, num_microbatches: int, tmp_path: Path
) -> None:
    path = _record_1f1b(num_workers, num_microbatches, tmp_path / "1f1b.csv")
    ours = one_f_one_b(ScheduleShape(num_workers, num_microbatches))
    assert read_schedule(path).workers == ours.workers


@pytest.mark.dist
@pytest.mark.timeout(240)
def test_schedules_of_torch_train_as_one_process_does(tmp_path: Path) -> None:
    cases = []
    for size in SHAPES:
        cases.append(Case(read_schedule(_record_1f1b(*size, tmp_path / "Schedule1F1B.csv"))))
        for name in CHUNKS:
            path = _dump(name, *size, tmp_path / f"{name}.csv", "compute_only")
            cases.append(Case(read_schedule(path)))
    parities = list(verify_cases(cases, timeout_s=200))
    assert len(parities) == 10
    for parity in parities:
        assert parity.holds, parity
