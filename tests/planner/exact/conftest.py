"""Random small worlds with all that a pipeline of equal workers can have."""

import numpy as np
import pytest

from evener.planner.joint.world import BACKWARD, WEIGHT, WHOLE, ChainCosts, world_of_chain


@pytest.fixture
def make_world():
    """make_world(seed, workers=..., microbatches=..., layers=..., message_ns=..., plain=...)."""

    def make(seed, *, workers, microbatches, layers, plain=False, cap_bytes=None):
        random = np.random.default_rng(seed)
        costs = ChainCosts(
            random.integers(1, 10, (layers, 3)).tolist(),
            latency_ns=int(random.integers(0, 4)),
            held_bytes=random.integers(1, 5, (layers, 2)).tolist(),
            cap_bytes=cap_bytes,
        )
        world = world_of_chain(costs, num_workers=workers, num_microbatches=microbatches)
        if plain:
            return world
        world.overhead_ns[0] = random.integers(0, 3)
        world.wire_ns[:, ~np.eye(workers, dtype=bool), 1:-1] = random.integers(0, 9)
        world.step_ns[1:] = np.cumsum(random.integers(0, 5, layers))
        saved = np.minimum(
            random.integers(0, 4, layers), np.diff(world.until_ns[[BACKWARD, WEIGHT], 0])
        )
        world.until_ns[WHOLE, :, 1:] -= np.cumsum(saved.min(axis=0))
        return world

    return make
