"""Work to be cut whose costs can be added up by hand."""

import pytest

from evener.planner.slicing.work import SliceWork


@pytest.fixture
def make_work():
    """make_work(tokens, ...): a token costs 1 and 1 for each token before it, an action 0."""

    def make(num_tokens, *, num_stages=4, num_microbatches=1, overhead_ns=0, grid=1):
        def flops(first, tokens):
            # sum of 1 + i for i from first on
            return tokens + sum(range(first, first + tokens))

        return SliceWork(
            num_tokens=num_tokens,
            num_stages=num_stages,
            num_microbatches=num_microbatches,
            flops=flops,
            latency_ns=lambda first, tokens: flops(first, tokens) + overhead_ns,
            grid=grid,
        )

    return make
