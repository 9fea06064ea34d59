"""What a planning problem tells the lower bounds."""

from dataclasses import replace

import pytest

from evener.planner.bound import lower_bound
from evener.planner.bounds.load import load_ns
from evener.planner.problem import Problem
from evener.spec.cluster import ClusterSpec, NodeSpec


@pytest.fixture
def unequal(make_problem) -> Problem:
    """Four layers of F 3, I 3, W 3 that take twice as long on the second of two devices."""
    problem = make_problem([3] * 4, num_workers=2, num_sequences=4, activation_bytes=10)
    cpu = problem.cluster.device_types["cpu"]
    cluster = ClusterSpec(
        name="unequal",
        device_types={"cpu": cpu, "slow": cpu},
        nodes=(
            NodeSpec(name="a", device="cpu", count=1),
            NodeSpec(name="b", device="slow", count=1),
        ),
        between_nodes={"bandwidth": "1 Gbit/s", "latency": "7 us"},
    )
    times = ("forward_ns", "backward_ns", "input_grad_ns", "weight_grad_ns")
    fast = problem.profile.layers
    slow = tuple(
        cost.model_copy(
            update={"device_type": "slow"} | {name: 2 * getattr(cost, name) for name in times}
        )
        for cost in fast
    )
    profile = problem.profile.model_copy(update={"layers": fast + slow, "links": ()})
    return replace(problem, cluster=cluster, profile=profile)


def test_each_worker_has_its_own_times(unequal):
    instance = unequal.instance(1, num_workers=2, num_microbatches=4)
    assert instance.chain.work_ns.tolist() == [9] * 4
    assert instance.worker_work_ns.tolist() == [[9] * 4, [18] * 4]
    assert instance.message_ns == 7000
    # In parts two thirds on the fast one: 24 x 4.  Two equal workers would need 18 x 4.
    assert load_ns(instance) == 96
    # Messages of 7 us are not worth it: all on one worker.
    assert lower_bound(instance).step_ns == 36 * 4


def test_workers_of_one_type_need_no_table(make_problem):
    problem = make_problem([3] * 4, num_workers=2, num_sequences=4)
    instance = problem.instance(1, num_workers=2, num_microbatches=4)
    assert instance.worker_work_ns is None
    assert instance.message_ns == 0


def test_memory_counts_unless_activations_may_leave(make_problem):
    job = {"num_workers": 2, "num_sequences": 4, "activation_bytes": 10}
    problem = make_problem([3] * 4, **job)
    memory = problem.instance(1, num_workers=2, num_microbatches=4).memory
    assert memory.held_bytes.tolist() == [10] * 4
    assert memory.room_bytes == sum(problem.cap_bytes)
    assert problem.instance(1, num_workers=2, num_microbatches=4, offloads=True).memory is None
    recomputed = make_problem([3] * 4, recompute="full", **job)
    assert recomputed.instance(1, num_workers=2, num_microbatches=4).memory is None
    # Parameters of 8 bytes are always held, with gradients and what the optimizer keeps.
    with_parameters = make_problem([3] * 4, parameter_bytes=8, **job)
    held = with_parameters.instance(1, num_workers=2, num_microbatches=4).memory
    assert held.room_bytes <= memory.room_bytes - 4 * 16
