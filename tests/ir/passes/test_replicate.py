"""Replicas side by side."""

from evener.ir.check import violations
from evener.ir.passes import replicate
from evener.ir.text import format_schedule, parse_schedule


def test_each_replica_has_its_own_workers_and_microbatches() -> None:
    one = parse_schedule(
        "# schedule x\n# stages 2\n# microbatches 2\n0F0 0F1 0X:side 0B0 0B1\n1F0 1B0 1F1 1B1\n"
    )
    two = replicate(one, 2)
    assert format_schedule(two) == (
        "# schedule x\n# stages 2\n# microbatches 4\n"
        "0F0 0F1 0X:side 0B0 0B1\n1F0 1B0 1F1 1B1\n"
        "0F2 0F3 0X:side 0B2 0B3\n1F2 1B2 1F3 1B3\n"
    )
    assert violations(two) == []
    assert replicate(one, 1) == one
