"""The loop runs every schedule that the checker accepts, over threads, with values checked."""

from collections.abc import Hashable
from random import Random

import pytest

from evener.errors import ExecutionError, UsageError
from evener.executor.clock import WallClock
from evener.executor.loop import Loop
from evener.executor.transport import Done
from evener.interp.worker import WorkerProgram
from evener.ir.action import Action
from evener.ir.check import violations
from evener.ir.passes import lower
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action
from evener.schedules import SCHEDULES, ScheduleShape, gpipe
from evener.testing.conformance import shape_for
from evener.testing.history_engine import Histories, HistoryEngine
from evener.testing.memory_transport import run_in_memory
from evener.testing.random_schedules import mutate, random_lowered_schedule


def play(schedule: Schedule, *, steps: int = 1, timeout_s: float = 20.0) -> None:
    """Run a lowered schedule in threads; every value is checked."""
    histories = Histories(schedule)

    def work(transport) -> None:
        program = WorkerProgram(schedule, transport.worker)
        for _ in range(steps):
            engine = HistoryEngine(histories, transport.worker)
            clock = WallClock(program)
            Loop(program, engine=engine, transport=transport, clock=clock).run_step()
            engine.finish()
        transport.close()

    run_in_memory(schedule.num_workers, work, timeout_s=timeout_s)


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_random_schedules_run_to_the_end_with_the_right_values(seed: int) -> None:
    for number in range(seed, seed + 20):
        play(random_lowered_schedule(Random(number)))


@pytest.mark.parametrize("name", SCHEDULES)
def test_known_schedules(name: str) -> None:
    entry = SCHEDULES[name]
    play(lower(entry(shape_for(entry, 3, 6)), clip=True), steps=2)


@pytest.mark.parametrize("name", ["pipedream_2bw", "amdp_2", "amdp_4"])
def test_several_updates_between_two_flushes(name: str) -> None:
    schedule = SCHEDULES[name](ScheduleShape(4, 8, num_updates=3))
    play(lower(schedule, tied=[(0, 3)], clip=True), steps=2)


def test_mutated_schedules_that_the_checker_accepts_run_too() -> None:
    # Sends before their producers, receives in odd places: whatever is not refused must run.
    num_run = 0
    for seed in range(200):
        random = Random(seed)
        schedule = mutate(random, random_lowered_schedule(random))
        if not violations(schedule):
            play(schedule, timeout_s=5)
            num_run += 1
    assert num_run > 10


class Journal:
    """Transport, engine and handle of one worker in one: notes what the loop asks for."""

    worker = 0
    num_workers = 2

    def __init__(self, fails_at: str = "") -> None:
        self.entries: list[str] = []
        self._fails_at = fails_at

    def _note(self, entry: str) -> None:
        self.entries.append(entry)
        if entry == self._fails_at:
            raise ConnectionError("boom")

    def signature(self, microbatch: int) -> Hashable:
        return f"shape {microbatch}"

    def run(self, action: Action) -> None:
        self._note(f"run {action}")

    def payload(self, action: Action) -> tuple:
        return ()

    def accept(self, action: Action, tensors: tuple) -> None:
        self._note(f"accept {action}")

    def collective(self, action: Action, transport, members: tuple[int, ...]):
        self._note(f"start {action} with {members}")
        return Done()

    def send(self, peer: int, key: Hashable, tensors: tuple) -> None:
        message, shape = key
        self._note(f"send {message} of {shape} to {peer}")

    def receive(self, peer: int, key: Hashable):
        message, shape = key
        self._note(f"post {message} of {shape} from {peer}")
        return Done()


def loop_of(row: str, other: str, journal: Journal, **sizes: int) -> Loop:
    rows = (tuple(map(parse_action, text.split())) for text in (row, other))
    schedule = Schedule("test", sizes.get("num_stages", 2), 2, tuple(rows))
    program = WorkerProgram(schedule, 0)
    return Loop(program, engine=journal, transport=journal, clock=WallClock(program))


FIRST = "0F0 0SEND_F0 0RECV_B0 0F1 0SEND_F1 0RECV_B1 0B0 0B1 0NORM 0STEP"
LAST = "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1NORM 1STEP"


def test_receives_are_posted_where_they_stand_and_taken_right_before_their_use() -> None:
    journal = Journal()
    loop = loop_of(FIRST, LAST, journal)
    for _ in range(2):
        loop.run_step()
        assert journal.entries == [
            "run 0F0",
            "send 0SEND_F of shape 0 to 1",
            "post 0RECV_B of shape 0 from 1",
            "run 0F1",
            "send 0SEND_F of shape 1 to 1",
            "post 0RECV_B of shape 1 from 1",
            "accept 0RECV_B0",
            "run 0B0",
            "accept 0RECV_B1",
            "run 0B1",
            "start 0NORM with (0, 1)",
            "run 0STEP",
        ]
        journal.entries.clear()


@pytest.mark.parametrize(
    ("fails_at", "text", "microbatch"),
    [
        ("run 0F1", "rank 0 failed in 0F1 (stage 0, microbatch 1): ConnectionError: boom", 1),
        (
            "accept 0RECV_B0",
            "rank 0 failed in 0B0 (stage 0, microbatch 0): ConnectionError: boom",
            0,
        ),
        ("run 0STEP", "rank 0 failed in 0STEP (stage 0): ConnectionError: boom", None),
    ],
)
def test_an_error_names_rank_stage_microbatch_and_action(
    fails_at: str, text: str, microbatch: int | None
) -> None:
    loop = loop_of(FIRST, LAST, Journal(fails_at))
    with pytest.raises(ExecutionError) as caught:
        loop.run_step()
    error = caught.value
    assert str(error) == text
    assert (error.rank, error.stage, error.microbatch) == (0, 0, microbatch)
    assert error.action == fails_at.rsplit(maxsplit=1)[-1].replace("RECV_B", "B")
    assert isinstance(error.__cause__, ConnectionError)


def test_an_error_while_waiting_says_for_what() -> None:
    class Broken:
        def wait(self) -> tuple:
            raise RuntimeError("connection closed by peer")

    journal = Journal()
    journal.receive = lambda peer, key: Broken()  # type: ignore[method-assign]
    with pytest.raises(ExecutionError) as caught:
        loop_of(FIRST, LAST, journal).run_step()
    assert str(caught.value) == (
        "rank 0 failed in 0B0 (stage 0, microbatch 0), waiting for 0RECV_B0: "
        "RuntimeError: connection closed by peer"
    )


def test_kinds_that_the_executor_does_not_run_are_refused() -> None:
    row = "0GATHER 0F0 0OFFLOAD0 0FREE0 0RELOAD0 0B0 0RELEASE"
    with pytest.raises(UsageError) as caught:
        loop_of(row, "0GATHER 0F1 0B1 0RELEASE", Journal(), num_stages=1)
    assert str(caught.value) == (
        "the executor does not run all actions of this schedule\n"
        "  worker 0: 0GATHER, 0RELEASE; "
        "run a schedule without actions of these kinds"
    )


def test_the_wall_clock_notes_every_action_in_order() -> None:
    schedule = lower(gpipe(ScheduleShape(1, 2)))
    journal = Journal()
    program = WorkerProgram(schedule, 0)
    clock = WallClock(program)
    Loop(program, engine=journal, transport=journal, clock=clock).run_step()
    times = [ns for pair in zip(clock.start_ns, clock.end_ns, strict=True) for ns in pair]
    assert times == sorted(times)
    assert times[0] > 0


def test_the_wall_clock_waits_for_devices_that_run_behind() -> None:
    program = WorkerProgram(lower(gpipe(ScheduleShape(1, 1))), 0)
    calls: list[None] = []
    clock = WallClock(program, lambda: calls.append(None))
    clock.compute(0, lambda: None, ())
    assert len(calls) == 2
