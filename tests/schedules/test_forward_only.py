import pytest

from evener.ir.action import Kind
from evener.ir.check import check
from evener.ir.passes import insert_messages
from evener.schedules import SCHEDULES, ScheduleShape, forward_only
from evener.sim import simulate
from evener.testing.conformance import shape_for
from evener.testing.worlds import unit_costs


@pytest.mark.parametrize("name", SCHEDULES)
def test_forwards_stay_where_they_were(name: str) -> None:
    entry = SCHEDULES[name]
    training = entry(shape_for(entry, 3, 5))
    evaluation = forward_only(training)
    assert {action.kind for _, action in evaluation.actions()} == {Kind.F}
    assert evaluation.runner == training.runner
    check(evaluation, forward_only=True)
    check(insert_messages(evaluation), forward_only=True)


def test_a_chain_of_forwards_takes_m_plus_p_minus_1() -> None:
    evaluation = forward_only(SCHEDULES["one_f_one_b"](ScheduleShape(4, 6)))
    assert simulate(evaluation, unit_costs(4, 4)).step_ns == 6 + 4 - 1
