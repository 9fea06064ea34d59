"""Try every schedule, number of stages, microbatch size and number of replicas.

Each gets its partition from dynamic programming over the measured costs; the simulator is the
judge. The best few are then improved by moving one boundary at a time.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from evener.cost.memory import model_state_bytes
from evener.cost.slices import cannot_be_sliced
from evener.errors import PlanInfeasible, ScheduleError
from evener.planner.bound import lower_bound
from evener.planner.bounds.instance import WHOLE, Instance, quotient_up
from evener.planner.candidate import Candidate, Evaluated, Shape
from evener.planner.partition.contiguous import Partition, balanced_partition
from evener.planner.problem import Problem, Progress
from evener.planner.result import PlanResult, Status
from evener.planner.slicing.of_problem import slice_tokens
from evener.planner.stop import StoppingCriterion
from evener.schedules import SCHEDULES, ScheduleEntry, ScheduleShape
from evener.schedules.entry import offered

_MOST_CHUNKS = 4
_NUM_IMPROVED = 3
_MOST_MISSES = 8


def plan_sweep(
    problem: Problem, *, stop: StoppingCriterion, seed: int, progress: Progress
) -> PlanResult:
    """The fastest simulated plan of all regular schedules with contiguous partitions.

    Raises PlanInfeasible with the nearest misses if none fits.
    """
    del seed  # nothing here is random
    start_s = time.monotonic()
    stop(None)  # a limit on time counts from here
    sweep = _Sweep(problem, stop, progress, _lower_bound_ns(problem))
    sweep.try_all()
    if not sweep.found:
        raise PlanInfeasible("no plan fits", sweep.misses())
    sweep.improve()
    candidate, best = sweep.best()
    bound_ns = sweep.bound_ns
    return candidate.result(
        best,
        lower_bound_ns=bound_ns,
        status=Status.of_search(best.step_ns, bound_ns, stopped=sweep.stopped),
        runtime_s=time.monotonic() - start_s,
        stats={"shapes": len(sweep.found), "simulated": sweep.num_simulated},
        refused=tuple(sweep.refused),
    )


@dataclass
class _Sweep:
    """The state of one search; found holds what fits, over the candidates that hold too much."""

    problem: Problem
    stop: StoppingCriterion
    progress: Progress
    bound_ns: int
    found: list[tuple[Candidate, Evaluated]] = field(default_factory=list)
    over: list[tuple[Candidate, Evaluated]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    num_simulated: int = 0
    stopped: bool = False

    def try_all(self) -> None:
        shapes = list(_shapes(self.problem, self.refused))
        for number, shape in enumerate(shapes):
            if self._should_stop():
                return
            self._try(Candidate(self.problem, shape))
            self.progress(number + 1, len(shapes), self._best_ns())

    def _try(self, candidate: Candidate) -> None:
        misses = []
        for with_caps in (False, True):
            partition = balanced(candidate, with_caps=with_caps)
            if partition is None:
                continue
            evaluated = self._evaluate(candidate, partition)
            if evaluated is None:
                continue
            if not evaluated.over:
                self.found.append((candidate, evaluated))
                return
            misses.append((candidate, evaluated))
        self.over += misses
        self.refused.append(f"{candidate.shape}: does not fit into memory")

    def improve(self) -> None:
        """Hill climbing: the best move of one boundary by one layer, until none helps."""
        self.found.sort(key=lambda pair: pair[1].step_ns)
        for number, (candidate, best) in enumerate(self.found[:_NUM_IMPROVED]):
            while best.step_ns > self.bound_ns:
                better = self._best_neighbour(candidate, best)
                if better is None:
                    break
                best = better
            self.found[number] = (candidate, best)

    def _best_neighbour(self, candidate: Candidate, current: Evaluated) -> Evaluated | None:
        best = None
        for partition in _neighbours(current.partition):
            if self._should_stop():
                break
            evaluated = self._evaluate(candidate, partition)
            if evaluated is None or evaluated.over:
                continue
            if evaluated.step_ns < (best or current).step_ns:
                best = evaluated
        return best

    def best(self) -> tuple[Candidate, Evaluated]:
        """The fastest; of equally fast ones the one whose fullest worker holds least.

        And of these the shortest pipeline, which has the fewest messages.
        """
        return min(
            self.found,
            key=lambda pair: (
                pair[1].step_ns,
                max(pair[1].outcome.peak_bytes),
                pair[0].shape.schedule.num_workers,
            ),
        )

    def misses(self) -> list[str]:
        """What is short in the candidate that is nearest to fitting, or why there is none."""
        if not self.over:
            return _grouped(self.refused)
        _, nearest = min(self.over, key=lambda pair: _excess_bytes(self.problem, pair[1]))
        return list(nearest.over)

    def _evaluate(self, candidate: Candidate, partition: Partition) -> Evaluated | None:
        """None if a schedule that adapts to costs has no order within the caps."""
        self.num_simulated += 1
        try:
            return candidate.evaluate(partition)
        except ScheduleError:
            return None

    def _best_ns(self) -> int | None:
        return min((evaluated.step_ns for _, evaluated in self.found), default=None)

    def _should_stop(self) -> bool:
        """Never before there is an answer."""
        asked = self.stop(self._best_ns())
        self.stopped = bool(self.found) and (self.stopped or asked)
        return self.stopped


def _grouped(refused: list[str]) -> list[str]:
    """Each reason once, with the first shape that it refuses; not more than can be read."""
    shapes: dict[str, list[str]] = {}
    for text in refused:
        shape, _, reason = text.partition(": ")
        shapes.setdefault(reason, []).append(shape)
    lines = []
    for reason, (first, *others) in shapes.items():
        lines.append(f"{first}{f', and {len(others)} more' if others else ''}: {reason}")
    left = len(lines) - _MOST_MISSES
    return lines if left <= 0 else [*lines[:_MOST_MISSES], f"and {left} more reasons"]


def _excess_bytes(problem: Problem, evaluated: Evaluated) -> int:
    """What all workers hold over their caps together."""
    pairs = zip(evaluated.outcome.peak_bytes, problem.cap_bytes, strict=False)
    return sum(max(0, peak - cap) for peak, cap in pairs)


def replica_counts(problem: Problem, microbatch_size: int) -> list[int]:
    """How many pipelines side by side share devices and microbatches evenly."""
    num_devices = len(problem.cluster.devices)
    num_microbatches = problem.job.num_sequences // microbatch_size
    return [
        count
        for count in range(1, num_devices + 1)
        if num_devices % count == 0 and num_microbatches % count == 0
    ]


def _shapes(problem: Problem, refused: list[str]) -> Iterator[Shape]:
    """Every shape that can run; of the others the reason is added to ``refused``."""
    for shape in (*_whole_shapes(problem), *_sliced_shapes(problem, refused)):
        if shape.schedule.num_stages > problem.num_layers:
            refused.append(_too_many_stages(shape, problem.num_layers))
        else:
            yield shape


def _whole_shapes(problem: Problem) -> Iterator[Shape]:
    """Those that cut no microbatches."""
    for size in problem.microbatch_sizes:
        for replicas in replica_counts(problem, size):
            for entry in offered(SCHEDULES.values(), asynchronous=problem.job.asynchronous):
                if entry.slicer is None:
                    for sizes in _chunked(problem, entry, size, replicas):
                        yield Shape(entry, sizes, size, replicas)


def _sliced_shapes(problem: Problem, refused: list[str]) -> Iterator[Shape]:
    """Those that cut them, where the job asks for it: by each rule in 2, 4, ... slices at most."""
    reasons = cannot_be_sliced(problem.model) if problem.job.slices > 1 else []
    refused += [f"token slices: layer {reason}" for reason in reasons]
    if problem.job.slices == 1 or reasons:
        return
    for size in problem.microbatch_sizes:
        for replicas in replica_counts(problem, size):
            for entry in SCHEDULES.values():
                if entry.slicer is not None:
                    yield from _cut(problem, entry, size, replicas)


def _cut(problem: Problem, entry: ScheduleEntry, size: int, replicas: int) -> Iterator[Shape]:
    assert entry.slicer is not None, "only schedules that cut"
    known = set()
    for most in _slice_counts(problem.job.slices):
        for sizes in _chunked(problem, entry, size, replicas, num_slices=most):
            tokens = slice_tokens(problem, sizes, entry.slicer, microbatch_size=size)
            shape = Shape(entry, replace(sizes, num_slices=len(tokens)), size, replicas, tokens)
            if len(tokens) > 1 and (sizes.chunks_per_worker, tokens) not in known:
                known.add((sizes.chunks_per_worker, tokens))
                yield shape


def _slice_counts(most: int) -> list[int]:
    """2, 4, 8, ... and the most."""
    return sorted({*(2**power for power in range(1, most.bit_length()) if 2**power < most), most})


def _chunked(
    problem: Problem, entry: ScheduleEntry, size: int, replicas: int, *, num_slices: int = 1
) -> Iterator[ScheduleShape]:
    """With every number of stages per worker that the schedule accepts."""
    num_workers = len(problem.cluster.devices) // replicas
    num_microbatches = problem.job.num_sequences // size // replicas
    num_updates = problem.job.num_updates if entry.asynchronous else 1
    for chunks in range(1, _MOST_CHUNKS + 1 if num_workers > 1 else 2):
        sizes = ScheduleShape(num_workers, num_microbatches, chunks, num_slices, num_updates)
        if entry.unsupported(sizes) is None:
            yield sizes


def balanced(candidate: Candidate, *, with_caps: bool) -> Partition | None:
    """The partition with the smallest largest stage; with caps, each stage gets an equal share."""
    problem, shape = candidate.problem, candidate.shape
    workers = [
        candidate.regular.workers_of_stage[stage][0] for stage in range(shape.schedule.num_stages)
    ]
    costs = [
        problem.layer_costs(problem.device_types[worker], shape.microbatch_size)
        for worker in workers
    ]
    time_ns = np.array(
        [[cost.forward_ns + problem.backward_ns(cost) for cost in row] for row in costs]
    )
    if not with_caps:
        return balanced_partition(time_ns)
    shares = list(map(len, candidate.regular.stages_of_worker))
    peaks = shape.entry.peak_in_flight(shape.schedule)
    num_slices = shape.schedule.num_slices
    in_flight = [
        -(-peak // (share * num_slices)) for peak, share in zip(peaks, shares, strict=True)
    ]
    keeps_all = problem.job.recompute != "full"
    bytes_of_stage: NDArray[np.int64] = np.array(
        [
            [
                model_state_bytes(cost.parameter_bytes, problem.profile.dtype, problem.job)
                + in_flight[worker] * (cost.activation_bytes if keeps_all else 0)
                for cost in row
            ]
            for worker, row in zip(workers, costs, strict=True)
        ]
    )
    cap_bytes = np.array([problem.cap_bytes[worker] // shares[worker] for worker in workers])
    return balanced_partition(time_ns, bytes_of_stage=bytes_of_stage, cap_bytes=cap_bytes)


def _neighbours(partition: Partition) -> Iterator[Partition]:
    """Each inner boundary one layer to the left, and to the right, where no stage gets empty."""
    for stage in range(len(partition) - 1):
        (first, cut), (_, last) = partition[stage], partition[stage + 1]
        for moved in (cut - 1, cut + 1):
            if first < moved < last:
                pair = ((first, moved), (moved, last))
                yield (*partition[:stage], *pair, *partition[stage + 2 :])


def _lower_bound_ns(problem: Problem) -> int:
    """No plan of any shape is faster; shapes whose parameters alone do not fit have no plan."""
    first_part = WHOLE if problem.job.slices == 1 else Fraction(0)  # a slice may be one token
    kinds = {
        (
            shape.microbatch_size,
            shape.schedule.num_workers,
            shape.schedule.num_microbatches,
            shape.schedule.num_updates,
            shape.entry.stage_copies,
        )
        for shape in _whole_shapes(problem)
        if shape.schedule.num_stages <= problem.num_layers and _parameters_fit(problem, shape)
    }
    instances: dict[int, list[Instance]] = {}  # by updates between two flushes
    for size, num_workers, num_microbatches, num_updates, stage_copies in kinds:
        instance = problem.instance(
            size,
            num_workers=num_workers,
            num_microbatches=num_microbatches * num_updates,
            offloads=problem.job.offload,
        )
        instances.setdefault(num_updates, []).append(
            replace(
                instance,
                stage_copies=stage_copies,
                first_part=first_part,
                slice_way_ns=problem.slice_way_ns(size, problem.job.slices),
            )
        )
    bounds_ns = (
        quotient_up(lower_bound(*of_runs).step_ns, num_updates)
        for num_updates, of_runs in instances.items()
    )
    return min(bounds_ns, default=0)


def _parameters_fit(problem: Problem, shape: Shape) -> bool:
    """Whether all devices together can hold every copy of the model and its optimizer."""
    costs = problem.layer_costs(problem.device_types[0], shape.microbatch_size)
    shared = problem.model.tied_layers
    own_bytes = sum(
        cost.parameter_bytes
        for layer, cost in enumerate(costs)
        if shared is None or layer != shared[1]  # its matrix is the embedding's
    )
    state_bytes = model_state_bytes(own_bytes, problem.profile.dtype, problem.job)
    # Where updates do not wait for one another, copies share one optimizer state.
    num_copies = 1 if shape.schedule.num_updates > 1 else shape.replicas * shape.entry.stage_copies
    return num_copies * state_bytes <= sum(problem.cap_bytes)


def _too_many_stages(shape: Shape, num_layers: int) -> str:
    return f"{shape}: needs {shape.schedule.num_stages} layers or more, the model has {num_layers}"
