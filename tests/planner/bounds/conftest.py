"""Instances small enough to work out by hand."""

import pytest

from evener.planner.bounds.instance import ChainTimes, Instance


@pytest.fixture
def make_instance():
    """make_instance(forward, input, weight, workers, microbatches, ...) -> Instance."""

    def make(forward, input_, weight, workers, microbatches, **others):
        chain = ChainTimes.of_parts(forward, input_, weight)
        return Instance(chain, workers, microbatches, **others)

    return make
