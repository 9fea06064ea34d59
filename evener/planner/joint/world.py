"""What the joint search knows of a problem: flat arrays that its compiled judge reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evener.cost.memory import model_state_bytes
from evener.cost.network import transfer_ns
from evener.planner.candidate import Candidate, Evaluated

Int = NDArray[np.int64]

FORWARD, BACKWARD, WEIGHT, WHOLE = range(4)
"""Rows of all arrays that have one per kind: F, I, W, and B instead of I and W."""

NEVER = 2**62


class World(NamedTuple):
    """One pipeline over a chain of layers; all int64.

    until_ns: [kind, worker, layer + 1], time of all layers in front of a cut. overhead_ns: [1], of
    each action. wire_ns: [F or I, source, target, cut], how long the activation behind that cut,
    and its gradient, occupy the link. latency_ns: [source, target].
    activation_bytes, weight_bytes, state_bytes: [layer + 1], of all layers in front of a cut;
    weight_bytes is what the input gradient leaves for the weight gradient. input_bytes, work_bytes:
    [layer], of the tensor that enters a layer, and of the gradients inside of it.
    cap_bytes: [worker], NEVER if nothing is limited. step_ns: [layer + 1], of the optimizer.
    sizes: [4], workers, microbatches, layers, and 1 if the backward repeats the forward.
    """

    until_ns: Int
    overhead_ns: Int
    wire_ns: Int
    latency_ns: Int
    activation_bytes: Int
    weight_bytes: Int
    state_bytes: Int
    input_bytes: Int
    work_bytes: Int
    cap_bytes: Int
    step_ns: Int
    sizes: Int


@dataclass(frozen=True)
class ChainCosts:
    """A chain of layers on workers, written down plainly; for ``world_of_chain``.

    times_ns: per layer (forward, input gradient, weight gradient), alike on all workers.
    latency_ns: of every message between two workers.
    held_bytes: per layer (activation, weight gradient), of one microbatch. cap_bytes: per worker.
    """

    times_ns: Sequence[tuple[int, int, int]]
    latency_ns: int = 0
    held_bytes: Sequence[tuple[int, int]] | None = None
    cap_bytes: int | None = None


def world_of_chain(chain: ChainCosts, *, num_workers: int, num_microbatches: int) -> World:
    """The world of equal workers."""
    forward, input_grad, weight_grad = np.array(chain.times_ns, dtype=np.int64).T
    kinds = np.stack([forward, input_grad, weight_grad, input_grad + weight_grad])
    num_layers = len(forward)
    held = np.zeros((num_layers, 2), dtype=np.int64)
    if chain.held_bytes is not None:
        held[:] = chain.held_bytes
    nothing = np.zeros(num_layers, dtype=np.int64)
    latency_ns = np.full((num_workers, num_workers), chain.latency_ns, dtype=np.int64)
    np.fill_diagonal(latency_ns, 0)
    cap = NEVER if chain.cap_bytes is None else chain.cap_bytes
    return World(
        until_ns=np.repeat(_until(kinds)[:, None], num_workers, axis=1),
        overhead_ns=np.zeros(1, dtype=np.int64),
        wire_ns=np.zeros((2, num_workers, num_workers, num_layers + 1), dtype=np.int64),
        latency_ns=latency_ns,
        activation_bytes=_until(held[:, 0]),
        weight_bytes=_until(held[:, 1]),
        state_bytes=_until(nothing),
        input_bytes=nothing,
        work_bytes=nothing,
        cap_bytes=np.full(num_workers, cap, dtype=np.int64),
        step_ns=_until(nothing),
        sizes=np.array([num_workers, num_microbatches, num_layers, 0]),
    )


def world_of(candidate: Candidate) -> World:
    """The world of the first pipeline of a candidate's shape."""
    problem, shape = candidate.problem, candidate.shape
    num_workers = shape.schedule.num_workers
    rows = [
        problem.layer_costs(kind, shape.microbatch_size)
        for kind in problem.device_types[:num_workers]
    ]
    layers = rows[0]
    again = 1 if problem.job.recompute == "full" else 0
    times = [
        [
            (c.forward_ns, c.input_grad_ns + extra, c.weight_grad_ns, c.backward_ns + extra)
            for c in row
            for extra in (again * c.recompute_ns,)
        ]
        for row in rows
    ]
    wire_ns, latency_ns = _links(candidate, num_workers)
    world = World(
        until_ns=_until(np.moveaxis(np.array(times, dtype=np.int64), 2, 0)),
        overhead_ns=np.array([problem.profile.overhead_ns]),
        wire_ns=wire_ns,
        latency_ns=latency_ns,
        activation_bytes=_until([c.activation_bytes for c in layers]),
        weight_bytes=_until([c.weight_gradient_bytes for c in layers]),
        state_bytes=_until(
            [
                model_state_bytes(c.parameter_bytes, problem.profile.dtype, problem.job)
                for c in layers
            ]
        ),
        input_bytes=np.array([c.input_bytes for c in layers], dtype=np.int64),
        work_bytes=np.array([c.activation_bytes for c in layers], dtype=np.int64),
        cap_bytes=np.array(candidate.cap_bytes[:num_workers], dtype=np.int64),
        step_ns=_until(
            [round(problem.profile.step_ns_per_parameter_byte * c.parameter_bytes) for c in layers]
        ),
        sizes=np.array([num_workers, shape.schedule.num_microbatches, len(layers), again]),
    )
    kept_bytes = max(world.activation_bytes[-1], world.weight_bytes[-1], world.input_bytes.sum())
    everything_bytes = (
        world.state_bytes[-1]
        + int(world.sizes[1]) * (kept_bytes + 2 * world.input_bytes.sum())
        + world.activation_bytes[-1]
        + world.work_bytes.max()
    )
    if everything_bytes <= world.cap_bytes.min():
        world.cap_bytes[:] = NEVER  # what cannot be reached need not be looked at
    return world


def lower_caps(world: World, candidate: Candidate, found: Evaluated) -> None:
    """By what the simulator holds more: received messages that wait are in its memory only.

    None below 0: a worker without stages holds that.
    """
    num_workers = len(world.cap_bytes)
    peaks = np.array(found.outcome.peak_bytes[:num_workers])
    caps = np.array(candidate.cap_bytes[:num_workers])
    missing = max(0, int((peaks - caps).max()))
    world.cap_bytes[:] = np.maximum(0, world.cap_bytes - missing)


def _links(candidate: Candidate, num_workers: int) -> tuple[Int, Int]:
    """``wire_ns`` and ``latency_ns``."""
    problem = candidate.problem
    layers = problem.layer_costs(problem.device_types[0], candidate.shape.microbatch_size)
    wire_ns = np.zeros((2, num_workers, num_workers, len(layers) + 1), dtype=np.int64)
    latency_ns = np.zeros((num_workers, num_workers), dtype=np.int64)
    for (source, target), (own_ns, bytes_per_s) in candidate.links(num_workers).items():
        latency_ns[source, target] = own_ns
        for cut in range(1, len(layers)):
            sizes = layers[cut - 1].output_bytes, layers[cut].input_bytes
            wire_ns[:, source, target, cut] = [transfer_ns(size, bytes_per_s) for size in sizes]
    return wire_ns, latency_ns


def _until(values: Int | Sequence[int]) -> Int:
    """Sums of what stands in front of each cut, along the last axis."""
    values = np.asarray(values, dtype=np.int64)
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1), dtype=np.int64)
    sums[..., 1:] = np.cumsum(values, axis=-1)
    return sums
