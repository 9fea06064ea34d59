"""Two real processes measure the link between them, and layers in step."""

from typing import NamedTuple

import pytest

from evener.cost.profile import LinkCost, Profile
from evener.executor.launch import Rank, run_workers
from evener.executor.torch_transport import TorchTransport
from evener.profiler import MeasureOptions, measure_links, measure_model
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec

pytestmark = pytest.mark.dist


class Measured(NamedTuple):
    links: tuple[LinkCost, ...]
    profile: Profile


def model() -> ModelSpec:
    return ModelSpec(
        name="tiny",
        hidden_size=8,
        vocabulary_size=11,
        layer_configs={"embedding": {"kind": "embedding"}, "head": {"kind": "head"}},
        pattern="embedding head",
    )


def test_two_processes_measure_one_another() -> None:
    def work(rank: Rank) -> Measured:
        transport = TorchTransport(
            rank.store, worker=rank.index, num_workers=2, pairs=[(0, 1), (1, 0)]
        )
        links = measure_links(transport, ["local:0", "local:1"], sizes_bytes=[1024, 2**16, 2**20])
        options = MeasureOptions(rounds=3, warm_up_rounds=1)
        profile = measure_model(
            model(), JobSpec(sequence_length=4), [1], options=options, peers=transport
        )
        transport.close()
        return Measured(links, profile)

    first, second = run_workers(work, 2, timeout_s=40)
    assert first == second
    assert [(link.from_device, link.to_device) for link in first.links] == [
        ("local:0", "local:1"),
        ("local:1", "local:0"),
    ]
    # A message takes more than nothing and less than a second.
    for link in first.links:
        assert 0 <= link.latency_ns < 1_000_000_000
        assert link.latency_ns > 0 or link.bytes_per_s > 0
    assert [cost.layer for cost in first.profile.layers] == ["embedding", "head"]
