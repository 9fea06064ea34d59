"""The largest of the lower bounds."""

import random
import tomllib
from dataclasses import replace
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from evener.planner.bound import lower_bound
from evener.planner.bounds.instance import ChainTimes, Instance, Memory

PROFILES = Path(__file__).parents[1] / "data" / "hybrid_profiles.toml"


def _published(model):
    """Layers of a published profile in ticks of 0.01 ms, each rounded by itself."""
    text = PROFILES.read_text(encoding="utf-8")
    profile = tomllib.loads(text, parse_float=Decimal)[model]
    names = ["E", *profile["pattern"], "L"]
    ticks = [
        [int((part * 100).quantize(Decimal(1), ROUND_HALF_EVEN)) for part in profile[name]]
        for name in names
    ]
    return ChainTimes.of_parts(*zip(*ticks, strict=True))


def test_pipeline_bound_is_the_largest():
    # load 4 x 24 / 3 = 32; chain 24; head 2 + 80 + 2 = 84
    chain = ChainTimes.of_parts([1, 1, 10], [1, 1, 10], [0, 0, 0])
    assert lower_bound(Instance(chain, 3, 4)).step_ns == 84
    assert lower_bound(Instance(chain, 3, 4)).proof == "heavy layer"


def test_slices_prove_less():
    # The way of a whole microbatch, 18 + 18, is no bound: load 36 / 3, and 1 + 10 + 10 + 1.
    chain = ChainTimes.of_parts([4, 4, 10], [4, 4, 10], [0, 0, 0])
    part = Fraction(1, 4)
    assert lower_bound(Instance(chain, 3, 1, first_part=part)).step_ns == 24


@pytest.mark.parametrize(
    ("model", "workers", "microbatches", "message", "ticks", "proof"),
    [
        # head 16 x (953 + 732) = 26960; all other forwards and input gradients 13467, once; the
        # load is 37088
        ("nemotron-h-8B", 8, 16, 0, 40427, "heavy layer"),
        # 7 messages on the way to the head and 7 on the way back: 40427 + 14 x 20
        ("nemotron-h-8B", 8, 16, 20, 40707, "heavy layer"),
        # 80 equal layers of 1681 on 4 workers with the head of 3749: some worker has 21 of them, or
        # 19 beside the head (35688).  Three workers cannot have 62 with less than 21 on two, and
        # one of these starts 437 (E) + 560 after the first, or E is added to 21: more.
        # 8 x 21 x 1681 + 437 + 560 = 283405; the load is 277750.
        ("llama3-70B", 4, 8, 0, 283405, "packing"),
        # load 85194; no worker but one can start before E, no two before E and M, and so on
        ("nemotron-nano-v2-9B", 4, 8, 0, 85520, "fill"),
    ],
)
def test_published_profiles(model, workers, microbatches, message, ticks, proof):
    found = lower_bound(Instance(_published(model), workers, microbatches, message_ns=message))
    assert (found.step_ns, found.proof) == (ticks, proof)


def test_using_all_workers_may_be_worse_than_using_some():
    # One worker alone: 1 x (2 + 2) = 4.  Two workers: two messages of 10 and the same 4.
    chain = ChainTimes.of_parts([1, 1], [1, 1], [0, 0])
    assert lower_bound(Instance(chain, 2, 1, message_ns=10)).step_ns == 4


def test_more_workers_than_layers_are_no_help():
    # two layers of 3 on at most two workers: 4 x 3, after the forward in front and before the way
    # back: 1 + 12 + 1
    chain = ChainTimes.of_parts([1, 1], [1, 1], [1, 1])
    bounds_ns = {workers: lower_bound(Instance(chain, workers, 4)).step_ns for workers in (2, 9)}
    assert bounds_ns[2] == bounds_ns[9] == 13


def _random_instance(rng):
    layers = rng.randint(2, 9)
    rows = [[rng.randint(0, 30) for _ in range(layers)] for _ in range(3)]
    instance = Instance(ChainTimes.of_parts(*rows), rng.randint(1, 5), rng.randint(1, 6))
    held = np.array([rng.randint(0, 9) for _ in range(layers)], np.int64)
    room = rng.randint(20, 200)
    return replace(
        instance, message_ns=rng.choice([0, 5]), memory=rng.choice([None, Memory(held, room)])
    )


@pytest.mark.parametrize("seed", range(30))
def test_more_work_or_fewer_workers_never_lower_the_bound(seed):
    rng = random.Random(seed)
    instance = _random_instance(rng)
    bound_ns = lower_bound(instance).step_ns
    chain = instance.chain
    layer = rng.randrange(instance.num_layers)
    longer_ns = chain.forward_ns.copy()
    longer_ns[layer] += 7
    longer = ChainTimes(longer_ns, chain.input_ns, chain.work_ns + longer_ns - chain.forward_ns)
    assert lower_bound(replace(instance, chain=longer)).step_ns >= bound_ns
    more = replace(instance, num_microbatches=instance.num_microbatches + 1)
    assert lower_bound(more).step_ns >= bound_ns
    slower = replace(instance, message_ns=instance.message_ns + 3)
    assert lower_bound(slower).step_ns >= bound_ns
    assert lower_bound(replace(instance, num_workers=instance.num_workers + 1)).step_ns <= bound_ns
    assert lower_bound(replace(instance, stage_copies=2)).step_ns <= bound_ns
    assert lower_bound(instance, more).step_ns == bound_ns
