from typing import Any

import numpy as np
import pytest

from evener.cost.build import cost_table
from evener.cost.profile import LayerCost, LinkCost, Profile
from evener.cost.table import KIND_INDEX, CostTable
from evener.errors import ProfileError, UsageError
from evener.ir.action import Kind
from evener.ir.passes import lower, replicate
from evener.ir.rules import Resource
from evener.ir.schedule import Schedule
from evener.ir.text import parse_schedule
from evener.schedules import SCHEDULES, ScheduleShape, one_f_one_b
from evener.sim import simulate
from evener.spec.cluster import ClusterSpec, NodeSpec
from evener.spec.device import DeviceSpec, LinkSpec
from evener.spec.job import DtypesSpec, JobSpec

TWO_STAGES = parse_schedule(
    "# schedule hand\n# stages 2\n# microbatches 2\n0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1"
)
JOB = JobSpec(global_batch_sequences=4, microbatch_size=2, sequence_length=64)
LAYERS = ("embedding", "mlp", "mlp", "head")


def layer(name: str, number: int, **changes: Any) -> LayerCost:
    """Sizes and times that are one digit each of ``number`` times a power of ten."""
    values = {
        "layer": name,
        "microbatch_size": 2,
        "sequence_length": 64,
        "forward_ns": 100 * number,
        "backward_ns": 210 * number,
        "input_grad_ns": 120 * number,
        "weight_grad_ns": 90 * number,
        "recompute_ns": 105 * number,
        "parameter_bytes": 4000 * number,
        "activation_bytes": 800 * number,
        "weight_gradient_bytes": 600 * number,
        "input_bytes": 32,
        "output_bytes": 64,
    }
    return LayerCost(**{**values, **changes})


PROFILE = Profile(
    model="small",
    fingerprint="abc",
    device_type="fast",
    host="a test",
    dtype="float32",
    layers=(
        layer("embedding", 1, input_bytes=16),
        layer("mlp", 2),
        layer("head", 3, output_bytes=4),
        layer("embedding", 10, input_bytes=16, device_type="slow"),
        layer("mlp", 20, device_type="slow"),
        layer("head", 30, output_bytes=4, device_type="slow"),
    ),
    step_ns_per_parameter_byte=0.5,
    overhead_ns=7,
)

DEVICE = DeviceSpec(
    memory_bytes=10**9,
    memory_bandwidth_bytes_per_s=10**9,
    peak_flops_per_s={"float32": 10**9},
)
CLUSTER = ClusterSpec(
    name="pair",
    device_types={"fast": DEVICE, "slow": DEVICE},
    nodes=(
        NodeSpec(
            name="a",
            device="fast",
            count=2,
            link=LinkSpec(latency_ns=50, bandwidth_bytes_per_s=10**9),
        ),
        NodeSpec(
            name="b",
            device="slow",
            count=2,
            link=LinkSpec(latency_ns=60, bandwidth_bytes_per_s=10**8),
        ),
    ),
    between_nodes=LinkSpec(latency_ns=900, bandwidth_bytes_per_s=10**8),
)


def table(schedule: Schedule = TWO_STAGES, **changes: Any) -> CostTable:
    parts = {
        "layers": LAYERS,
        "partition": ((0, 2), (2, 4)),
        "devices": (("a:0",), ("a:1",)),
        "profile": PROFILE,
        "cluster": CLUSTER,
        "job": JOB,
    }
    return cost_table(schedule, **{**parts, **changes})


def times(costs: CostTable, worker: int, stage: int) -> dict[Kind, int]:
    return {kind: int(costs.time_ns[worker, stage, KIND_INDEX[kind]]) for kind in Kind}


def test_a_stage_takes_the_sum_of_its_layers_and_the_overhead() -> None:
    # Stage 0 is embedding and mlp: 1 + 2 = 3 units; stage 1 is mlp and head: 2 + 3 = 5.
    found = times(table(), 0, 0)
    assert found[Kind.F] == 300 + 7
    assert found[Kind.B] == 630 + 7
    assert found[Kind.I] == 360 + 7
    assert found[Kind.W] == 270 + 7
    assert found[Kind.R] == 315 + 7
    assert found[Kind.STEP] == 12_000 // 2 + 7
    assert times(table(), 1, 1)[Kind.F] == 500 + 7


def test_the_device_of_a_worker_decides_its_times() -> None:
    costs = table(devices=(("a:0",), ("b:0",)))
    assert times(costs, 0, 1)[Kind.F] == 500 + 7
    assert times(costs, 1, 1)[Kind.F] == 5000 + 7


def test_what_crosses_a_boundary_is_that_of_the_layer_beside_it() -> None:
    costs = table()
    assert costs.forward_bytes.tolist() == [64, 4]
    assert costs.backward_bytes.tolist() == [16, 32]


def test_links_are_those_of_the_cluster_unless_they_were_measured() -> None:
    costs = table(devices=(("a:0",), ("b:0",)))
    assert costs.latency_ns.tolist() == [[0, 900], [900, 0]]
    assert costs.bytes_per_s.tolist() == [[0, 10**8], [10**8, 0]]
    by_type = LinkCost(from_device="fast", to_device="slow", latency_ns=3, bytes_per_s=4)
    by_name = LinkCost(from_device="b:0", to_device="a:0", latency_ns=5, bytes_per_s=0)
    measured = PROFILE.model_copy(update={"links": (by_type, by_name)})
    costs = table(devices=(("a:0",), ("b:0",)), profile=measured)
    assert costs.latency_ns.tolist() == [[0, 3], [5, 0]]
    assert costs.bytes_per_s.tolist() == [[0, 4], [0, 0]]


def test_recomputation_inside_the_backward_takes_its_time_and_saves_memory() -> None:
    plain, full = table(), table(job=JOB.model_copy(update={"recompute": "full"}))
    for kind, extra_ns in {Kind.F: 0, Kind.B: 315, Kind.I: 315, Kind.W: 0}.items():
        assert times(full, 0, 0)[kind] == times(plain, 0, 0)[kind] + extra_ns
    assert plain.memory.per_stage[Resource.ACTIVATION] == (2400, 4000)
    assert full.memory.per_stage[Resource.ACTIVATION] == (16, 32)
    # 3 x 4000 bytes of parameters, kept four times; the largest layer's backward (mlp: 1600; with
    # recomputation 2400 more for the stage).
    assert plain.memory.static_bytes[0] == 4 * 12_000 + 1600
    assert full.memory.static_bytes[0] == 4 * 12_000 + 1600 + 2400


def test_recomputation_that_the_schedule_spells_out_is_not_paid_twice() -> None:
    spelled = parse_schedule(
        "# schedule hand\n# stages 2\n# microbatches 1\n0F0 0R0 0B0\n1F0 1R0 1B0"
    )
    costs = table(spelled, job=JOB.model_copy(update={"recompute": "full"}))
    assert times(costs, 0, 0)[Kind.B] == 630 + 7
    assert costs.memory.per_stage[Resource.ACTIVATION] == (2400, 4000)


def test_gradients_are_reduced_over_the_workers_of_a_stage() -> None:
    twice = replicate(TWO_STAGES, 2)
    # Both stages on node a, then once more on node b.
    devices = (("a:0",), ("a:1",), ("b:0",), ("b:1",))
    costs = table(twice, devices=devices)
    # Ring over 2: two rounds of half of 12,000 bytes at 0.1 bytes/ns, 900 ns each on the way.
    assert times(costs, 0, 0)[Kind.REDUCE] == 2 * 900 + 120_000
    assert times(costs, 3, 1)[Kind.REDUCE] == 2 * 900 + 200_000
    # Six rounds of a quarter of 8 bytes: 12 bytes at 0.1 bytes/ns.
    assert times(costs, 0, 0)[Kind.NORM] == 6 * 900 + 120
    half = JOB.model_copy(update={"dtypes": DtypesSpec(gradients="bfloat16")})
    costs = table(twice, devices=devices, job=half)
    assert times(costs, 0, 0)[Kind.REDUCE] == 2 * 900 + 60_000


def test_a_stage_on_one_worker_has_nothing_to_reduce() -> None:
    assert times(table(), 0, 0)[Kind.REDUCE] == 0


def test_shared_parameters_are_reduced_on_their_own() -> None:
    layers = ("embedding", "mlp", "mlp", "embedding")
    link = LinkCost(from_device="fast", to_device="fast", latency_ns=0, bytes_per_s=10**9)
    costs = table(
        replicate(TWO_STAGES, 2),
        layers=layers,
        tied=[(0, 1)],
        devices=(("a:0",), ("a:1",)) * 2,
        profile=PROFILE.model_copy(update={"links": (link,)}),
    )
    # Four workers hold the 4,000 bytes of the embedding: 6/4 of them at 1 byte/ns.
    assert costs.tied_ns == {(0, 1): 6000}
    # What is left are the 8,000 bytes of the mlp on two workers: 2/2 of them.
    assert times(costs, 0, 0)[Kind.REDUCE] == times(costs, 0, 1)[Kind.REDUCE] == 8000


def test_no_work_costs_nothing() -> None:
    sizes = {name: 0 for name in LayerCost.model_fields if name.endswith(("_ns", "_bytes"))}
    nothing = PROFILE.model_copy(
        update={
            "layers": tuple(layer(name, 0, **sizes) for name in dict.fromkeys(LAYERS)),
            "overhead_ns": 0,
        }
    )
    costs = table(replicate(TWO_STAGES, 2), profile=nothing, devices=(("a:0",), ("a:1",)) * 2)
    assert not costs.forward_bytes.any()
    assert costs.memory.static_bytes == (0, 0, 0, 0)
    norm_ns = costs.time_ns[:, :, KIND_INDEX[Kind.NORM]]
    assert (costs.time_ns.sum(axis=2) == norm_ns).all()


@pytest.mark.parametrize(
    "field", [name for name in LayerCost.model_fields if name.endswith(("_ns", "_bytes"))]
)
def test_more_of_anything_costs_no_less(field: str) -> None:
    layers = tuple(
        cost.model_copy(update={field: getattr(cost, field) + 1000}) for cost in PROFILE.layers
    )
    schedule = lower(replicate(TWO_STAGES, 2))
    devices = (("a:0",), ("a:1",), ("b:0",), ("a:1",))
    before = table(schedule, devices=devices)
    after = table(schedule, devices=devices, profile=PROFILE.model_copy(update={"layers": layers}))
    assert (after.time_ns >= before.time_ns).all()
    for resource in Resource:
        assert np.greater_equal(
            after.memory.per_stage[resource], before.memory.per_stage[resource]
        ).all()
    assert np.greater_equal(after.memory.static_bytes, before.memory.static_bytes).all()
    one, other = simulate(schedule, before), simulate(schedule, after)
    assert one.step_ns <= other.step_ns
    changed = one.step_ns < other.step_ns or one.peak_bytes != other.peak_bytes
    assert changed or field in {
        "input_grad_ns",
        "weight_grad_ns",
        "recompute_ns",
        "weight_gradient_bytes",
    }


def test_all_layers_that_were_not_measured_are_named() -> None:
    with pytest.raises(ProfileError) as caught:
        table(layers=("embedding", "moe", "mamba", "head"))
    assert [text.partition(" on ")[0] for text in caught.value.violations] == [
        'layer "moe"',
        'layer "mamba"',
    ]


def test_all_parts_that_do_not_fit_are_named() -> None:
    odd = parse_schedule(
        "# schedule hand\n# stages 2\n# microbatches 1\n0GATHER 0F0 0B0 0RELEASE\n1F0 1B0"
    )
    with pytest.raises(UsageError) as caught:
        table(odd, partition=((0, 0), (0, 3), (3, 9)), devices=(("a:0", "a:1"),), tied=[(1, 5)])
    assert str(caught.value) == (
        "the costs of this schedule cannot be computed\n"
        "  3 stages are described, but the schedule has 2\n"
        "  1 workers are described, but the schedule has 2\n"
        "  worker 0 has 2 devices; costs are known for one device per worker\n"
        "  stage 0 has layers 0 to 0 of 4; give it at least one\n"
        "  stage 2 has layers 3 to 9 of 4; give it at least one\n"
        "  stages 1 and 5 cannot share parameters: there are 3 stages\n"
        "  no cost is known for GATHER actions; write the table yourself\n"
        "  no cost is known for RELEASE actions; write the table yourself"
    )


def test_a_job_that_leaves_its_microbatch_open_is_refused() -> None:
    with pytest.raises(UsageError, match="leaves its microbatch size to the planner"):
        table(job=JOB.model_copy(update={"microbatch_size": "auto"}))


def test_a_profile_in_another_number_format_is_refused() -> None:
    mixed = JOB.model_copy(update={"dtypes": DtypesSpec(activations="bfloat16")})
    with pytest.raises(ProfileError) as caught:
        table(job=mixed)
    assert str(caught.value) == (
        "the profile was measured in float32, but the job computes in bfloat16; measure with the "
        "job's number formats"
    )


def test_a_device_that_the_cluster_does_not_have_is_named() -> None:
    with pytest.raises(UsageError, match='no device "a:7"'):
        table(devices=(("a:0",), ("a:7",)))


def test_several_updates_between_two_flushes() -> None:
    job = JobSpec(
        global_batch_sequences=8, microbatch_size=2, sequence_length=64, asynchronous=True
    )
    shape = ScheduleShape(2, 4, num_updates=3)
    plain = table(one_f_one_b(ScheduleShape(2, 4)), job=job)
    stashed = table(SCHEDULES["pipedream_2bw"](shape), job=job)
    both_ends = table(SCHEDULES["amdp_2"](shape), job=job)
    # Stage 0 has 12000 bytes of weights and stage 1 has 20000; 2BW keeps them twice.
    extra = zip(plain.memory.static_bytes, stashed.memory.static_bytes, strict=True)
    assert [ours - theirs for theirs, ours in extra] == [12_000, 20_000]
    # Both workers hold both stages, but only the first has the two states of AdamW.
    first, second = both_ends.memory.static_bytes
    assert first - second == 2 * 32_000
    assert times(both_ends, 0, 0)[Kind.STEP] == 6000 + 7
    assert times(both_ends, 1, 0)[Kind.STEP] == 7
    # One message of 12000 bytes at 1 byte per ns, and the latency of 50.
    assert times(both_ends, 0, 0)[Kind.SHARE] == times(both_ends, 1, 0)[Kind.SHARE] == 12_050
    assert times(stashed, 0, 0)[Kind.SHARE] == 0
