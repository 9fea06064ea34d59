"""The states of a side task, under a clock that stands still unless the task moves it."""

import pytest

from evener.errors import UsageError
from evener.executor.side_tasks import SideTask, SideTasks, State, assign_side_tasks


class World:
    """A clock, and a task that takes the times it is told; what was called is in ``calls``."""

    def __init__(self, *step_ns: int, more: int = 1_000, fail_in: str = "") -> None:
        self.now_ns = 0
        self.calls: list[str] = []
        self._step_ns = list(step_ns)
        self._left = more
        self._fail_in = fail_in
        transitions = ("create", "load", "start", "pause", "stop")
        self.task = SideTask("task", self._step, *map(self._transition, transitions))

    def tasks(self, **options: int) -> SideTasks:
        return SideTasks([self.task], worker=3, now_ns=lambda: self.now_ns, **options)

    def _step(self) -> bool:
        self.calls.append("step")
        self.now_ns += self._step_ns[0] if len(self._step_ns) == 1 else self._step_ns.pop(0)
        self._left -= 1
        if self._fail_in == "step" and self._left < 996:
            raise ArithmeticError("no more")
        return self._left > 0

    def _transition(self, name: str):
        def call() -> None:
            self.calls.append(name)
            if name == self._fail_in:
                raise ArithmeticError("no more")

        return call


def test_a_task_goes_through_its_states_and_steps_while_a_step_fits() -> None:
    # Three steps of 10 to try it out: now 30. A bubble of 10 leaves 9 for steps, 15 % being 1
    # rounded down: room for none. One of 100 until 85 leaves until 70: room for four.
    world = World(10)
    with world.tasks() as tasks:
        assert tasks.reports[0].state is State.PAUSED
        tasks.run_in(30, 40)
        assert world.calls == ["create", "load", "start", "step", "step", "step", "pause"]
        tasks.run_in(-15, 85)
        assert world.calls[7:] == ["start", "step", "step", "step", "step", "pause"]
        assert world.now_ns == 70
    (report,) = tasks.reports
    assert world.calls[-1] == "stop"
    assert (report.worker, report.name, report.state) == (3, "task", State.STOPPED)
    assert (report.num_steps, report.busy_ns, report.late_ns, report.reason) == (4, 40, 0, None)


def test_the_estimate_is_the_median_of_the_last_steps() -> None:
    # Tried out with 10, 90 and 10: one of 90 is an outlier, and 10 fits into 20 (now 110).
    world = World(10, 90, 10)
    with world.tasks() as tasks:
        tasks.run_in(110, 134)  # steps until 131
    assert tasks.reports[0].num_steps == 2


def test_a_task_that_has_nothing_left_stops() -> None:
    world = World(10, more=5)
    with world.tasks() as tasks:
        tasks.run_in(0, 1_000)
        assert world.calls[-3:] == ["step", "step", "stop"]
        assert tasks.reports[0].state is State.STOPPED
        tasks.run_in(1_000, 2_000)
    assert (tasks.reports[0].num_steps, world.calls.count("stop")) == (2, 1)


def test_a_task_that_overruns_a_bubble_is_stopped_for_good() -> None:
    # Tried out until 30. In a bubble of 25 steps may end until 52, as 15 % are 3: the first one
    # takes 10, the next one should, but takes 41, until 81.
    world = World(10, 10, 10, 10, 41, 10)
    with world.tasks(grace_ns=20) as tasks:
        tasks.run_in(30, 55)
    (report,) = tasks.reports
    assert (report.num_steps, report.busy_ns, report.late_ns) == (2, 51, 26)
    assert report.reason == (
        "it went on for 0.0 ms beyond the end of a bubble, 2e-05 ms are allowed; make its steps "
        "shorter"
    )


@pytest.mark.parametrize(
    ("fail_in", "reason"),
    [
        ("create", "the way to created raised ArithmeticError: no more"),
        ("start", "the way to running raised ArithmeticError: no more"),
        ("pause", "the way to paused raised ArithmeticError: no more"),
        ("step", "step raised ArithmeticError: no more"),
        ("stop", "stop raised ArithmeticError: no more"),
    ],
)
def test_a_task_that_fails_does_not_fail_the_training(fail_in: str, reason: str) -> None:
    world = World(10, fail_in=fail_in)
    with world.tasks() as tasks:
        tasks.run_in(0, 240)
    (report,) = tasks.reports
    assert (report.state, report.reason) == (State.STOPPED, reason)
    assert world.calls.count("stop") == (0 if fail_in == "create" else 1)


def test_a_task_goes_where_there_is_memory_and_little_company() -> None:
    tasks = [SideTask(f"t{size}", lambda: True, memory_bytes=size) for size in (5, 5, 9, 1)]
    # 5 to worker 0, 5 to 1 (0 has one), 9 to 2 (the only one with 9), 1 to 0.
    assigned = assign_side_tasks(tasks, [10, 10, 9])
    assert {worker: [task.name for task in own] for worker, own in assigned.items()} == {
        0: ["t5", "t1"],
        1: ["t5"],
        2: ["t9"],
    }
    with pytest.raises(UsageError) as caught:
        assign_side_tasks(tasks, [4, 6])
    assert str(caught.value) == (
        "no worker has memory left for all side tasks\n"
        "  side task t5 needs 5 bytes, the most that is left on a worker is 4; make it smaller, or "
        "leave it out\n"
        "  side task t9 needs 9 bytes, the most that is left on a worker is 4; make it smaller, or "
        "leave it out"
    )
