"""One backward, one forward in turn: the steady state of the 1F1B family."""

from collections.abc import Sequence
from itertools import chain

from evener.ir.action import Action


def alternate(
    forward: Sequence[Action], backward: Sequence[Action], *, in_flight: int
) -> tuple[Action, ...]:
    """Run ``in_flight`` forwards, then backward and forward in turn, then the other backwards."""
    steady = zip(backward, forward[in_flight:], strict=False)
    return (
        *forward[:in_flight],
        *chain.from_iterable(steady),
        *backward[len(forward) - in_flight :],
    )
