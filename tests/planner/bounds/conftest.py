"""Instances small enough to work out by hand."""

import numpy as np
import pytest

from evener.planner.bounds.instance import ChainTimes, Instance


@pytest.fixture
def make_instance():
    """make_instance(forward, input, weight, workers, microbatches, ...) -> Instance."""

    def make(forward, input_, weight, workers, microbatches, **others):
        forward_ns, input_ns, weight_ns = (
            np.array(row, dtype=np.int64) for row in (forward, input_, weight)
        )
        chain = ChainTimes(forward_ns, input_ns, forward_ns + input_ns + weight_ns)
        return Instance(chain, workers, microbatches, **others)

    return make
