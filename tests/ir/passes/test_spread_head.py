"""A head spread over the workers: a part on each, and nobody waits in a circle."""

import pytest

from evener.ir.action import Kind
from evener.ir.check import check
from evener.ir.passes import lower, spread_head
from evener.ir.text import parse_schedule
from evener.schedules import SCHEDULES, ScheduleShape
from evener.testing.conformance import SHAPES, SLICED_SHAPES

SLIMPIPE = """\
# schedule slimpipe
# stages 5
# microbatches 2
# slices 2
# edges 0>1 1>2 1>3 2>4 3>4
0F0.0 0F0.1 2F0.0 0F1.0 2F0.1 2B0.1 0F1.1 2B0.0 0B0.1 2F1.0 0B0.0 2F1.1 2B1.1 2B1.0 0B1.1 0B1.0
1F0.0 3F0.0 1F0.1 4F0.0 3F0.1 4F0.1 4B0.1 3B0.1 1B0.1 4B0.0 3B0.0 1F1.0 3F1.0 1B0.0 4F1.0 1F1.1 \
3F1.1 4F1.1 4B1.1 3B1.1 4B1.0 3B1.0 1B1.1 1B1.0
"""


def test_every_worker_has_a_part_and_the_last_one_the_loss() -> None:
    # Stages 2 and 3 are the parts, 4 the loss. The loss of 0.1 is needed at once, as its backward
    # is next; that of 0.0, and all backwards after it, come one action before they are needed.
    whole = SCHEDULES["slimpipe"](ScheduleShape(2, 2, num_slices=2))
    assert spread_head(whole) == parse_schedule(SLIMPIPE)


@pytest.mark.parametrize("name", [n for n, e in SCHEDULES.items() if not e.asynchronous])
def test_the_order_of_a_schedule_stays_and_the_parts_fit_into_it(name: str) -> None:
    entry = SCHEDULES[name]
    shapes = [s for s in (*SHAPES, *SLICED_SHAPES) if entry.unsupported(s) is None]
    wholes = [entry(shape) for shape in shapes if shape.num_workers in (1, 3)]
    for whole in (each for each in wholes if not each.braids):
        spread = spread_head(whole)
        check(spread)
        check(lower(spread, clip=True))
        for own, all_of in zip(whole.workers, spread.workers, strict=True):
            assert own == tuple(each for each in all_of if each.stage < whole.num_stages)
        assert spread.kinds <= whole.kinds | {Kind.B}
