"""On tiny problems no plan is faster than the planner's: proven by trying all of them."""

from dataclasses import dataclass
from itertools import islice, product
from random import Random

import pytest

from evener.cost.profile import LayerCost, LinkCost, Profile
from evener.planner.joint.plan_joint import JointPlanner
from evener.planner.problem import Problem
from evener.planner.result import Status
from evener.planner.stop import NeverStop
from evener.spec.cluster import ClusterSpec
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec

FORWARD, INPUT, WEIGHT = range(3)


@dataclass(frozen=True)
class Tiny:
    """times_ns: per layer (F, I, W). Workers are equal; message_ns: between any two of them."""

    times_ns: tuple[tuple[int, int, int], ...]
    num_workers: int
    num_microbatches: int
    message_ns: int = 0

    def is_faster_than(self, limit_ns):
        """Whether any plan takes less than that.

        One layer per stage is enough: what a larger stage does, its layers can do one after the
        other on the same worker, and a neighbour never waits longer for them.
        """
        for workers in product(range(self.num_workers), repeat=len(self.times_ns)):
            first_seen = list(dict.fromkeys(workers))
            if first_seen == sorted(first_seen) and _Orders(self, workers, limit_ns).exists():
                return True
        return False


class _Orders:
    """All orders under one placement, depth first, cut off at the limit.

    Microbatches are alike, so each layer takes them in turn.  A state is what is done, and how
    long each worker waits for what is ready later; one that was seen is not looked at again.
    """

    def __init__(self, tiny, workers, limit_ns):
        self.times_ns, self.workers, self.limit_ns = tiny.times_ns, workers, limit_ns
        self.num_microbatches, self.message_ns = tiny.num_microbatches, tiny.message_ns
        self.free_ns = [0] * tiny.num_workers
        self.left_ns = [0] * tiny.num_workers
        for times, worker in zip(tiny.times_ns, workers, strict=True):
            self.left_ns[worker] += sum(times) * tiny.num_microbatches
        forward_ns, input_ns, weight_ns = zip(*tiny.times_ns, strict=True)
        layers = range(len(workers))
        # from the start of an action, the rest of its microbatch
        back_ns = [sum(input_ns[: layer + 1]) + weight_ns[0] for layer in layers]
        self.way_ns = [
            (sum(forward_ns[layer:]) + back_ns[-1], back_ns[layer], weight_ns[layer])
            for layer in layers
        ]
        self.ends = {}
        self.done = [[0, 0, 0] for _ in layers]
        self.seen = set()

    def exists(self):
        if any(f + w >= self.limit_ns for f, w in zip(self.free_ns, self.left_ns, strict=True)):
            return False
        if not any(self.left_ns):
            return True
        key = (str(self.done), tuple(self.free_ns), tuple(self._waits()))
        if key in self.seen:
            return False
        self.seen.add(key)
        return any(self._try(*choice) for choice in self._choices())

    def _waits(self):
        for layer, kind in product(range(len(self.workers)), (FORWARD, INPUT)):
            for number in range(self.done[layer][kind], self.num_microbatches):
                ready_ns = self._ready_ns(layer, kind, number)
                if ready_ns is not None:
                    yield max(0, ready_ns - self.free_ns[self.workers[layer]])

    def _choices(self):
        """Some best order has one of these next (Giffler and Thompson, 1960).

        Of all that could run, take the worker of the earliest end, and there what starts before it.
        """
        possible = []
        for layer, kind in product(range(len(self.workers)), range(3)):
            number = self.done[layer][kind]
            if number == self.num_microbatches:
                continue
            ready_ns = self._ready_ns(layer, kind, number)
            if ready_ns is not None:
                start_ns = max(ready_ns, self.free_ns[self.workers[layer]])
                if start_ns + self.way_ns[layer][kind] >= self.limit_ns:
                    return []
                possible.append((start_ns + self.times_ns[layer][kind], start_ns, layer, kind))
        first_end_ns, _, layer, _ = min(possible)
        worker = self.workers[layer]
        return [
            (start_ns, layer, kind)
            for _, start_ns, layer, kind in possible
            if self.workers[layer] == worker and start_ns < first_end_ns
        ]

    def _ready_ns(self, layer, kind, number):
        if kind == FORWARD:
            return 0 if layer == 0 else self._arrival_ns(layer, layer - 1, FORWARD, number)
        if kind == WEIGHT or layer == len(self.workers) - 1:
            return self.ends.get((layer, kind - 1, number))
        return self._arrival_ns(layer, layer + 1, INPUT, number)

    def _arrival_ns(self, layer, other, kind, number):
        end_ns = self.ends.get((other, kind, number))
        if end_ns is None or self.workers[layer] == self.workers[other]:
            return end_ns
        return end_ns + self.message_ns

    def _try(self, start_ns, layer, kind):
        worker, time_ns = self.workers[layer], self.times_ns[layer][kind]
        number, free_ns = self.done[layer][kind], self.free_ns[worker]
        self.ends[layer, kind, number] = self.free_ns[worker] = start_ns + time_ns
        self.left_ns[worker] -= time_ns
        self.done[layer][kind] += 1
        found = self.exists()
        self.done[layer][kind] -= 1
        self.left_ns[worker] += time_ns
        self.free_ns[worker] = free_ns
        del self.ends[layer, kind, number]
        return found


def _worlds(seed):
    rng = Random(seed)
    while True:
        num_layers, num_workers = rng.randint(2, 4), rng.randint(2, 3)
        times = tuple(tuple(rng.randint(1, 9) for _ in range(3)) for _ in range(num_layers))
        yield Tiny(times, num_workers, rng.randint(2, 4), rng.choice((0, 0, 2, 5)))


def _problem(tiny):
    names = [f"l{layer}" for layer in range(len(tiny.times_ns))]
    model = ModelSpec.model_validate(
        {
            "name": "tiny",
            "hidden_size": 1,
            "norm": "none",
            "layer": {name: {"kind": "module", "num_parameters": 0} for name in names},
            "pattern": " ".join(names),
        }
    )
    cluster = ClusterSpec.local(tiny.num_workers)
    profile = Profile(
        model="tiny",
        fingerprint=model.fingerprint(),
        device_type="cpu",
        host="drawn",
        dtype="float32",
        layers=tuple(map(_layer, names, tiny.times_ns)),
        links=tuple(
            LinkCost(from_device=a, to_device=b, latency_ns=tiny.message_ns, bytes_per_s=0)
            for a in cluster.devices
            for b in cluster.devices
            if a != b
        ),
    )
    job = JobSpec(
        global_batch_sequences=tiny.num_microbatches, sequence_length=1, microbatch_size=1
    )
    return Problem(model, cluster, job, profile)


def _layer(name, times_ns):
    forward_ns, input_ns, weight_ns = times_ns
    return LayerCost(
        layer=name,
        microbatch_size=1,
        sequence_length=1,
        forward_ns=forward_ns,
        backward_ns=input_ns + weight_ns,
        input_grad_ns=input_ns,
        weight_grad_ns=weight_ns,
        recompute_ns=forward_ns,
        parameter_bytes=0,
        activation_bytes=1,
        weight_gradient_bytes=1,
        input_bytes=0,
        output_bytes=0,
    )


def _planned_ns(tiny):
    planner = JointPlanner(one_pipeline=True)
    result = planner(_problem(tiny), stop=NeverStop(), seed=0, progress=lambda *_: None)
    assert result.status is Status.OPTIMAL
    return result.objective_ns


def test_two_workers_by_hand():
    # 2 layers of F I W = 1 1 1, 2 workers, 2 microbatches: load 12 / 2 = 6, but one worker cannot
    # start before the first forward of the other has ended: 7
    tiny = Tiny(((1, 1, 1), (1, 1, 1)), 2, 2)
    assert _planned_ns(tiny) == 7
    assert not tiny.is_faster_than(7)
    assert tiny.is_faster_than(8)


@pytest.mark.parametrize("tiny", list(islice(_worlds(0), 4)))
def test_no_plan_is_faster(tiny):
    assert not tiny.is_faster_than(_planned_ns(tiny))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_plan_is_faster_in_many_worlds():
    wrong = [tiny for tiny in islice(_worlds(1), 200) if tiny.is_faster_than(_planned_ns(tiny))]
    assert wrong == []
