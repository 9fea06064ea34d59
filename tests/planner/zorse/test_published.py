"""The published example and its figure, and the formula taken apart."""

from dataclasses import replace

import pytest

from evener.planner.zorse.fleet import Fleet, Gpu, LayerFit, LayerTime, MachineLink, Transformer
from evener.planner.zorse.published import Batch, published_plan

LLAMA_TINY = Transformer(num_layers=22, hidden_size=2048, num_parameters=51_384_320)
GIB = 2**30


def test_the_shipped_example(shipped_example) -> None:
    """7721.375 ms: way in 22 x 25.906 (P40), then 27 more forwards of the A6000 (22 x 1.7748) and
    28 of its backwards (22 x 6.5650), and out 22 x 93.325 (P40):
    569.934 + 1054.216 + 4044.067 + 2053.158.
    """
    plan = published_plan(shipped_example, LLAMA_TINY, Batch(128, 512))
    assert plan is not None
    assert plan.step_ms == pytest.approx(7721.375000533334, abs=1e-3)
    assert plan.microbatch_size == 2
    assert plan.groups == ((0, 1, 2, 3),)
    assert plan.microbatches == ((18, 17, 28, 1),)
    assert plan.layers == ((22,),)


def two_machines(memory_gib: int) -> Fleet:
    """Two machines of two GPUs, 1 and 2 ms for a layer and two sequences; 100 and 10 GB/s."""
    fast, slow = (LayerFit((ms / 2, 0.0), (ms, 0.0)) for ms in (1.0, 2.0))
    gpus = [Gpu(machine, kind, memory_gib * GIB) for machine, kind in ("af", "af", "bs", "bs")]
    links = {(a, b): MachineLink(1e11 if a == b else 1e10, 1.0) for a, b in ("aa", "ab", "bb")}
    return Fleet(tuple(gpus), links, {"f": fast, "s": slow})


def test_two_groups_by_hand() -> None:
    """8 sequences in microbatches of 2, 4 of them, 2 per GPU; 6 layers go 4 : 2.

    No parameters, so collectives take nothing; 2 x 1 x 1 x 2 = 4 bytes, so a message takes 0.8 ms.
    One mini-stage each: in 4 x 1 + 0.8 + 2 x 2 = 8.8; the fast group is busy 4 forwards of the
    second microbatch and 2 x 12 for backwards, 28, the slow one 4 + 2 x 12 = 28; out
    2 x 6 + 0.8 + 4 x 3 = 24.8. Two mini-stages each (2 and 1 layers): in 2 + 0.8 + 2 + 2 = 6.8,
    busy 2 x (1 + 2) + 4 x 6 = 30, out 6 + 0.8 + 6 + 6 = 18.8. So two are better: 55.6 < 61.6.
    Microbatches of 4, one per GPU, take longer on the way in and out: 77.6 at best.
    """
    model = Transformer(num_layers=6, hidden_size=1, num_parameters=0)
    plan = published_plan(two_machines(16), model, Batch(8, 1))
    assert plan is not None
    assert plan.groups == ((0, 1), (2, 3))
    assert (plan.microbatch_size, plan.microbatches) == (2, ((2, 2), (2, 2)))
    assert plan.layers == ((2, 2), (1, 1))
    assert plan.step_ms == pytest.approx(55.6)


def test_interleaving_makes_a_model_fit() -> None:
    """24 layers of 2^30 parameters, 16 on the fast pair and 8 on the slow one; the optimizer's
    12 bytes and 2 GiB reserved leave 16 x 12 / 2 = 96 + 2 GiB on the fast pair. Whole it has 32 GiB
    of parameters, 130 GiB; in 4 mini-stages two whole, 16 GiB, and 8 of 16 layers sharded, 8 GiB:
    122 GiB and a little for activations.
    """
    model = Transformer(num_layers=24, hidden_size=1, num_parameters=GIB)
    batch = Batch(8, 1)
    plan = published_plan(two_machines(123), model, batch)
    assert plan is not None
    assert plan.layers == ((4, 4, 4, 4), (2, 2, 2, 2))
    assert published_plan(two_machines(121), model, batch) is None


def test_lines_do_not_fall_below_zero() -> None:
    """The A6000 in fp32: 3.696 x 1 - 3.930 is below zero for one sequence."""
    fit = LayerFit((3.696, -3.930), (6.252, -5.647))
    assert fit.at(1) == LayerTime(0.0, pytest.approx(0.605))
    assert fit.at(2) == LayerTime(pytest.approx(3.462), pytest.approx(6.857))


@pytest.mark.parametrize(("model", "layers", "hidden", "parameters"), [
    ("llama_7b", 32, 4096, 202_383_360),
    ("llama_13b", 40, 5120, 317_204_480),
    ("llama_33b", 60, 6656, 535_049_216),
    ("llama_65b", 80, 8192, 809_517_056),
])  # fmt: skip
def test_every_model_has_a_plan_on_the_papers_first_cluster(
    model: str, layers: int, hidden: int, parameters: int, fits
) -> None:
    """4 H100 (94 GB) and 16 A100 (80 GB) in three machines; the published search refuses 65B."""
    machines = [("h", "h100-nvl", 94, 4), ("a", "a100x80", 80, 8), ("b", "a100x80", 80, 8)]
    gpus = [Gpu(m, kind, gib * GIB) for m, kind, gib, count in machines for _ in range(count)]
    links = {(x, y): MachineLink(200e9 if x == y else 12.5e9, 0.1) for x in "hab" for y in "hab"}
    fleet = Fleet(tuple(gpus), links, fits(model, 4096))
    plan = published_plan(fleet, Transformer(layers, hidden, parameters), Batch(256, 4096))
    assert plan is not None
    assert sum(map(sum, plan.layers)) == layers
    for group, microbatches in zip(plan.groups, plan.microbatches, strict=True):
        assert len(group) == len(microbatches)
        assert sum(microbatches) == 256 // plan.microbatch_size
    alone = replace(fleet, gpus=fleet.gpus[4:])
    without = published_plan(alone, Transformer(layers, hidden, parameters), Batch(256, 4096))
    assert without is None or plan.step_ms < without.step_ms
