"""Leaving parameters of a stage out of the backward of one microbatch.

A parameter that requires no gradient while a forward runs is not part of the graph that the forward
leaves: its gradient is not computed, with a whole backward as well as with a split one, and what
only it needs is not kept.  Everything else in the graph is what it was.

The gradients of a step are still divided by all that counts in it, frozen microbatches included: a
parameter that some of them leave out has a smaller gradient, as in TimelyFreeze (2602.05754).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

from torch import nn

from evener.ir.freezing import WHOLE_PPM
from evener.modules.keyed_rng import key

# On the first stage the odds fall linearly to this from 1 for its first parameter.
_LAST_ODDS = 0.1


def draw_frozen(
    parameters: Sequence[nn.Parameter],
    share_ppm: int,
    *,
    seed: int,
    step: int,
    stage: int,
    microbatch: int,
) -> list[nn.Parameter]:
    """The parameters that a microbatch leaves out, anew for every step and microbatch.

    parameters: all of the stage, in order. share_ppm: how many of them, in parts per million: of
        what is no whole number, the fraction is the probability of one more, so that the mean over
        many steps is the share, also for a stage of few parameters.

    All are equally likely, but on stage 0 the front ones are more so: where nothing in front of a
    layer learns, its input needs no gradient either.  (TimelyFreeze, 2602.05754, and its code.)
    """
    count = len(parameters)
    if share_ppm in (0, WHOLE_PPM):
        return list(parameters) if share_ppm else []
    # Below zero there are no layers, whose dropout draws from the same keys.
    random = Random(key(seed, step, -1 - stage, microbatch))
    num_frozen, rest_ppm = divmod(count * share_ppm, WHOLE_PPM)
    num_frozen += random.random() * WHOLE_PPM < rest_ppm
    slope = (1 - _LAST_ODDS) / max(1, count - 1) if stage == 0 else 0.0
    # The largest of u ** (1 / odds) are a draw without replacement by these odds.
    tickets = [random.random() ** (1 / (1 - slope * index)) for index in range(count)]
    chosen = sorted(range(count), key=tickets.__getitem__, reverse=True)[:num_frozen]
    return [parameters[index] for index in sorted(chosen)]


@contextmanager
def frozen(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Forwards in this context leave no trace of the parameters, all of which learn otherwise."""
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)
