"""Whether a run is no longer what its plan was made for, and what it is instead."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from evener.ir.plan import Plan
from evener.planner.replan.observation import Observation, Observer
from evener.planner.replan.world import Way, World
from evener.units import format_ns

_NUM_FITS = 200

_MOST_WRONG = 4.0
"""No layer is believed to take more times as long as its profile says, or as short; what a profile
does not explain with that is the workers'."""


@dataclass(frozen=True)
class Drift:
    """What an observation says. world: what is to be believed now. reasons: sentences about what is
    new, none if all is as expected. only_links: whether workers and work are as they were.
    """

    world: World
    reasons: tuple[str, ...] = ()
    only_links: bool = False


@dataclass(frozen=True)
class Expected:
    """A plan in the world that it was made for; plan: of the user's devices."""

    plan: Plan
    world: World

    @cached_property
    def observer(self) -> Observer:
        """Reads the timelines of the plan."""
        return Observer(self.plan.lowered(), self.world.costs(self.plan))

    def compare(self, seen: Observation, *, threshold: float, trusts_layers: bool) -> Drift:
        """What an observation of the plan says of the world.

        threshold: a worker has changed if its time did by more than this factor, up or down; a link
            if its latency did by more than that of which this factor makes a mean action longer.
        trusts_layers: whether the costs of layers were measured in this run.  If not, what differs
            is explained by them as far as can be, and by the workers only where it cannot.

        Later, what all workers have in common is the work's (other sequence lengths), and the rest
        each worker's own: machines become slow one by one, layers all at once.
        """
        world, reasons = self.world, []
        common = _common(self._slowness(seen).values())
        if _differs(common, threshold) and trusts_layers:
            reasons.append(f"the work takes {common:.2f} times as long as expected")
        if reasons or not trusts_layers:
            fitted = self._fitted_layers(seen)
            world = world.with_layers(fitted)
            name, way = max(fitted, key=lambda each: _size(fitted[each]))
            if not trusts_layers and _differs(fitted[name, way], threshold):
                by = f"{fitted[name, way]:.2f} times as long {way} as its profile says"
                reasons.append(f"layer {name} takes {by}")
        factors = Expected(self.plan, world)._slowness(seen)
        world = world.with_speeds(factors)
        reasons += [
            f"{world.names[rank]} takes {factor:.2f} times as long as expected"
            for rank, factor in factors.items()
            if _differs(factor, threshold)
        ]
        only_links = not reasons
        before_ns = self.world.latency_ns
        slow_ns = self._new_latencies(seen, (threshold - 1) * self.observer.mean_action_ns)
        reasons += [
            f"messages from {world.names[source]} to {world.names[target]} take"
            f" {format_ns(now_ns, digits=3)} instead of"
            f" {format_ns(before_ns[source, target], digits=3)}"
            for (source, target), now_ns in slow_ns.items()
        ]
        return Drift(world.with_latencies(slow_ns), tuple(reasons), only_links)

    @cached_property
    def _ranks(self) -> list[int]:
        """Of the plan's workers."""
        return [self.world.names.index(name) for (name,) in self.plan.devices]

    def _slowness(self, seen: Observation) -> dict[int, float]:
        """Per rank that works, the time of all its work by what was expected."""
        expected_ns: dict[int, int] = {}
        seen_ns: dict[int, int] = {}
        for (worker, _, _), own_ns, found_ns in zip(
            self.observer.parts, self.observer.expected_ns, seen.work_ns, strict=True
        ):
            rank = self._ranks[worker]
            expected_ns[rank] = expected_ns.get(rank, 0) + int(own_ns)
            seen_ns[rank] = seen_ns.get(rank, 0) + int(found_ns)
        return {rank: seen_ns[rank] / max(1, own_ns) for rank, own_ns in expected_ns.items()}

    def _fitted_layers(self, seen: Observation) -> dict[tuple[str, Way], float]:
        """Factors of the kinds of layers that explain the times of the parts best.

        Starts at 1 and stays near it where the parts leave a choice: the multiplicative rule of
        Richardson (J. Opt. Soc. Am. 62, 1972) and Lucy (Astron. J. 79, 1974).
        """
        problem, parts = self.world.problem, self.observer.parts
        ways: tuple[Way, Way] = ("forward", "backward")
        unknowns = list(product(dict.fromkeys(problem.layer_configs), ways))
        place = {unknown: column for column, unknown in enumerate(unknowns)}
        part_ns = np.zeros((len(parts), len(unknowns)))
        for row, (worker, stage, way) in enumerate(parts):
            costs = problem.layer_costs(f"rank{self._ranks[worker]}", self.plan.microbatch_size)
            for cost in costs[slice(*self.plan.partition[stage])]:
                own_ns = cost.forward_ns if way == "forward" else cost.backward_ns
                part_ns[row, place[cost.layer, way]] += own_ns
        # In units of what is seen, so that what the executor adds to an action is shared out.
        sums_ns = np.maximum(part_ns.sum(axis=1), 1)
        part_ns *= (self.observer.expected_ns / sums_ns)[:, None]
        factors = np.ones(len(unknowns))
        weights = np.maximum(part_ns.sum(axis=0), 1)
        for _ in range(_NUM_FITS):
            ratios = seen.work_ns / np.maximum(part_ns @ factors, 1)
            factors *= (part_ns.T @ ratios) / weights
            factors = factors.clip(1 / _MOST_WRONG, _MOST_WRONG)
        return {
            unknown: float(factor)
            for unknown, factor, weight in zip(unknowns, factors, weights, strict=True)
            if weight > 1
        }

    def _new_latencies(self, seen: Observation, least_ns: float) -> dict[tuple[int, int], int]:
        """By (source, target) ranks, those that differ by more than ``least_ns``."""
        found = {}
        for (source, target), own_ns, is_exact in zip(
            self.observer.links, seen.latency_ns, seen.is_exact, strict=True
        ):
            link = self._ranks[source], self._ranks[target]
            change_ns = int(own_ns) - self.world.latency_ns[link]
            if abs(change_ns) > least_ns and (is_exact or change_ns < 0):
                found[link] = int(own_ns)
        return found


def _common(factors: Collection[float]) -> float:
    """What of them all have: the one that is nearest to 1, or 1 if they are on both sides of it."""
    return max(1.0, min(factors)) if max(factors) > 1 else max(factors)


def _differs(factor: float, threshold: float) -> bool:
    return _size(factor) > threshold


def _size(factor: float) -> float:
    """Of a change, up or down."""
    return max(factor, 1 / max(factor, 1e-9))
