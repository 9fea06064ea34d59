from dataclasses import replace

import numpy as np
import pytest

from evener.cost.table import KIND_INDEX, CostTable, SliceCosts
from evener.errors import ProfileError, UsageError
from evener.ir.action import Kind
from evener.ir.rules import Resource
from evener.ir.text import parse_action


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (2, 1, 1)),
        ({"input_ns": 5, "weight_ns": 3}, (8, 5, 3)),
        ({"input_ns": 5}, (6, 5, 1)),
        ({"backward_ns": 7}, (7, 4, 3)),
        ({"backward_ns": 7, "input_ns": 2}, (7, 2, 5)),
        ({"backward_ns": 7, "weight_ns": 2}, (7, 5, 2)),
        ({"backward_ns": 7, "input_ns": 9, "weight_ns": 4}, (7, 9, 4)),
        ({"backward_ns": 7, "input_ns": 9}, (7, 9, 0)),
    ],
)
def test_backward_is_made_of_its_halves(
    given: dict[str, int], expected: tuple[int, int, int]
) -> None:
    costs = CostTable.uniform(1, 2, **given)
    times = [costs.action_ns(0, parse_action(text)) for text in ("1B0", "1I0", "1W0")]
    assert tuple(times) == expected


def test_uniform_costs() -> None:
    costs = CostTable.uniform(3, 2, forward_ns=4, latency_ns=6, activation_bytes=5)
    assert (costs.num_workers, costs.num_stages) == (3, 2)
    assert costs.action_ns(2, parse_action("1F0")) == costs.action_ns(0, parse_action("0R7")) == 4
    assert costs.action_ns(0, parse_action("0STEP")) == 0
    assert costs.memory.size_bytes(Resource.ACTIVATION, 1) == 5
    assert costs.memory.size_bytes(Resource.INPUT, 1) == 0
    assert costs.latency_ns.tolist() == [[6, 6, 6]] * 3


def test_costs_of_stages() -> None:
    costs = CostTable.of_stages(2, {Kind.F: [3, 4], Kind.B: [5, 6]}, activation_bytes=[7, 8])
    assert costs.time_ns[:, :, KIND_INDEX[Kind.F]].tolist() == [[3, 4], [3, 4]]
    assert costs.time_ns.sum() == 2 * (3 + 4 + 5 + 6)
    assert costs.memory.per_stage[Resource.ACTIVATION] == (7, 8)
    assert costs.memory.static_bytes == (0, 0)


def test_a_message_is_sized_by_its_direction_and_takes_its_link() -> None:
    costs = CostTable.uniform(2, 2)
    costs.forward_bytes[:] = 10, 20
    costs.backward_bytes[:] = 30, 40
    costs.bytes_per_s[0, 1] = 10**9
    for text, num_bytes in (("0SEND_F3", 10), ("1F3", 20), ("1SEND_B3", 40), ("0I3", 30)):
        assert costs.message_ns(0, 1, parse_action(text)) == num_bytes
        assert costs.message_ns(1, 0, parse_action(text)) == 0


def test_side_work_and_shared_reductions_are_looked_up_by_name() -> None:
    costs = CostTable.uniform(1, 2)
    costs.time_ns[0, 0, KIND_INDEX[Kind.REDUCE]] = 9
    named = CostTable(
        **{**vars(costs), "side_ns": {"encode": 11}, "tied_ns": {(0, 1): 4}},
    )
    assert named.action_ns(0, parse_action("0X:encode")) == 11
    assert named.action_ns(0, parse_action("0REDUCE>1")) == 4
    assert named.action_ns(0, parse_action("0REDUCE")) == 9
    assert costs.action_ns(0, parse_action("0REDUCE>1")) == 9
    with pytest.raises(ProfileError, match="side work X:decode"):
        named.action_ns(0, parse_action("0X:decode"))


def test_a_single_time_goes_before_all_others() -> None:
    costs = replace(
        CostTable.uniform(1, 2),
        side_ns={"encode": 11},
        single_ns={parse_action("1B3"): 7, parse_action("0X:encode"): 5, parse_action("0X:a"): 4},
    )
    texts = ("1B3", "1B2", "0X:encode", "0X:a")
    assert [costs.action_ns(0, parse_action(text)) for text in texts] == [7, 2, 5, 4]
    costs.require_side_times([parse_action("0X:a")])


def test_kinds_are_indexed_in_their_order() -> None:
    assert [KIND_INDEX[kind] for kind in Kind] == np.arange(len(Kind)).tolist()


def test_slices_may_have_costs_of_their_own() -> None:
    table = CostTable.uniform(2, 2, forward_ns=3, backward_ns=6)
    equal = SliceCosts.equal(table, 2)
    equal.time_ns[1, 1, KIND_INDEX[Kind.F], 1] = 50
    equal.forward_bytes[0, 1], equal.backward_bytes[1, 0] = 20, 30
    table.bytes_per_s[:] = 1_000_000_000  # a byte takes a nanosecond
    cut = replace(table, slices=equal)
    assert cut.action_ns(1, parse_action("1F0.0")) == 3
    assert cut.action_ns(1, parse_action("1F0.1")) == 50
    assert cut.action_ns(1, parse_action("1F0")) == 3
    assert cut.message_ns(0, 1, parse_action("0SEND_F0.0")) == 0
    assert cut.message_ns(0, 1, parse_action("0SEND_F0.1")) == 20
    assert cut.message_ns(1, 0, parse_action("1SEND_B0.0")) == 30
    assert table.action_ns(1, parse_action("1F0.1")) == 3
    assert table.message_bytes(parse_action("0SEND_F0.1")) == 0


def test_costs_of_another_number_of_slices_are_refused() -> None:
    table = CostTable.uniform(1, 1)
    replace(table, slices=SliceCosts.equal(table, 2)).require_slices(2)
    table.require_slices(2)  # each slice takes what the table says of one action
    with pytest.raises(UsageError) as caught:
        replace(table, slices=SliceCosts.equal(table, 2)).require_slices(3)
    assert str(caught.value) == (
        "the costs are those of 2 slices, but the schedule cuts microbatches into 3; build the "
        "costs for this schedule"
    )
