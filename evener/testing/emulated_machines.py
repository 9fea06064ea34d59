"""Real training at the pace of a profile, on machines that can be disturbed on the way.

Tensors, messages and losses are those of any training; an action that has ended early sleeps until
it has taken what the costs say, and a message waits until it has been on its way for so long.  So
several workers share a core without being in each other's way, and what is measured is the world
that was described, not this machine.
"""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evener.cost.profile import Profile
from evener.cost.table import CostTable
from evener.ir.action import Action
from evener.ir.plan import Plan
from evener.planner.replan.world import World
from evener.spec.cluster import ClusterSpec
from evener.spec.model import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

    from evener.executor.train import Trainer
    from evener.executor.transport import Handle, Transport


@dataclass(frozen=True)
class Disturbance:
    """What is different from a step on.

    slow: by device, how many times as long its actions take. delay_ns: by (source, target)
    devices, how much longer messages are on their way.
    """

    first_step: int
    slow: Mapping[str, float] = field(default_factory=dict)
    delay_ns: Mapping[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True)
class EmulatedMachines:
    """The machines of a cluster as a profile has them: latencies, but unlimited bandwidths.

    ``Session(..., on_start=machines.install)`` runs on them, under any plan.
    """

    model: ModelSpec
    cluster: ClusterSpec
    profile: Profile
    disturbances: Sequence[Disturbance] = ()

    def world(self, plan: Plan, step: int) -> World:
        """The machines of a plan as they are in a step."""
        world = World.of(plan, self.model, self.cluster, self.profile)
        ranks = {name: rank for rank, name in enumerate(world.names)}
        latency_ns = dict(world.latency_ns)
        for each in self.disturbances:
            if each.first_step <= step:
                world = world.with_speeds({ranks[name]: by for name, by in each.slow.items()})
                for (source, target), delay_ns in each.delay_ns.items():
                    latency_ns[ranks[source], ranks[target]] += delay_ns
        return world.with_latencies(latency_ns)

    def install(self, trainer: "Trainer") -> None:
        """Slow this worker down to its machine; before the trainer's first step."""
        pace = _Pace(self, trainer)
        engine = trainer.engine
        engine.run = pace.run  # type: ignore[method-assign]
        engine.collective = pace.collective  # type: ignore[method-assign]
        trainer.transport = _Shaped(trainer.transport, pace)


class _Pace:
    """What a worker's actions cost in the step that is being run."""

    def __init__(self, machines: EmulatedMachines, trainer: "Trainer") -> None:
        self._trainer = trainer
        self._run, self._collective = trainer.engine.run, trainer.engine.collective
        begins = sorted({0, *(each.first_step for each in machines.disturbances)})
        self._costs = [
            (step, machines.world(trainer.plan, step).costs(trainer.plan)) for step in begins
        ]

    @property
    def costs(self) -> CostTable:
        step = self._trainer.step_index
        return next(costs for first, costs in reversed(self._costs) if first <= step)

    def latency_ns(self, source: int) -> int:
        return int(self.costs.latency_ns[source, self._trainer.transport.worker])

    def run(self, action: Action) -> None:
        end_ns = self._end_ns(action)
        self._run(action)
        _sleep_until(end_ns)

    def collective(
        self, action: Action, transport: "Transport", members: tuple[int, ...]
    ) -> "Handle":
        end_ns = self._end_ns(action)
        return _NotBefore(
            self._collective(action, transport, members), lambda tensors: (end_ns, tensors)
        )

    def _end_ns(self, action: Action) -> int:
        return time.monotonic_ns() + self.costs.action_ns(self._trainer.transport.worker, action)


class _Shaped:
    """A transport whose messages arrive no earlier than the link lets them."""

    def __init__(self, inner: "Transport", pace: _Pace) -> None:
        self._inner = inner
        self._pace = pace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def send(self, peer: int, key: Hashable, tensors: "tuple[Tensor, ...]") -> None:
        import torch

        self._inner.send(peer, key, (torch.tensor([time.monotonic_ns()]), *tensors))

    def receive(self, peer: int, key: Hashable) -> "Handle":
        latency_ns = self._pace.latency_ns(peer)
        return _NotBefore(
            self._inner.receive(peer, key),
            lambda tensors: (int(tensors[0]) + latency_ns, tensors[1:]),
        )


@dataclass(frozen=True)
class _NotBefore:
    """A handle that ends no earlier than what has come says; read: its time, and what is left."""

    inner: "Handle"
    read: "Callable[[tuple[Tensor, ...]], tuple[int, tuple[Tensor, ...]]]"

    def wait(self) -> "tuple[Tensor, ...]":
        end_ns, tensors = self.read(self.inner.wait())
        _sleep_until(end_ns)
        return tensors


def _sleep_until(end_ns: int) -> None:
    time.sleep(max(0, end_ns - time.monotonic_ns()) / 1e9)
