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
from evener.ir.rules import RULES, Stream
from evener.planner.plan_costs import costs_of_plan
from evener.spec.cluster import ClusterSpec
from evener.spec.model import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

    from evener.executor.train import Trainer
    from evener.executor.transport import Handle, Transport
    from evener.ir.action import Action


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

    def install(self, trainer: "Trainer") -> None:
        """Slow this worker down to its machine; before the trainer's first step."""
        worker, plan = trainer.transport.worker, trainer.plan
        costs = costs_of_plan(plan, self.profile, self.cluster, model=self.model)
        times_ns = {
            action: costs.action_ns(worker, action)
            for action in plan.lowered().workers[worker]
            if RULES[action.kind].stream is Stream.COMPUTE
        }
        names = [name for (name,) in plan.devices]

        def slowness() -> float:
            factor = 1.0
            for each in self._present(trainer):
                factor *= each.slow.get(names[worker], 1.0)
            return factor

        def latency_ns(source: int) -> int:
            link = names[source], names[worker]
            delays = (each.delay_ns.get(link, 0) for each in self._present(trainer))
            return int(costs.latency_ns[source, worker]) + sum(delays)

        trainer.engine.run = _paced(trainer.engine.run, times_ns, slowness)  # type: ignore[method-assign]
        trainer.transport = _Shaped(trainer.transport, latency_ns)

    def _present(self, trainer: "Trainer") -> list[Disturbance]:
        step = trainer.step_index
        return [each for each in self.disturbances if each.first_step <= step]


def _paced(
    run: "Callable[[Action], None]",
    times_ns: "Mapping[Action, int]",
    slowness: Callable[[], float],
) -> "Callable[[Action], None]":
    from evener.executor.emulated_clock import sleep_until

    def paced(action: "Action") -> None:
        end_ns = time.monotonic_ns() + round(times_ns[action] * slowness())
        run(action)
        sleep_until(end_ns)

    return paced


class _Shaped:
    """A transport whose messages arrive no earlier than the link lets them."""

    def __init__(self, inner: "Transport", latency_ns: Callable[[int], int]) -> None:
        self._inner = inner
        self._latency_ns = latency_ns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def send(self, peer: int, key: Hashable, tensors: "tuple[Tensor, ...]") -> None:
        import torch

        self._inner.send(peer, key, (torch.tensor([time.monotonic_ns()]), *tensors))

    def receive(self, peer: int, key: Hashable) -> "Handle":
        return _Underway(self._inner.receive(peer, key), self._latency_ns(peer))


@dataclass(frozen=True)
class _Underway:
    inner: "Handle"
    latency_ns: int

    def wait(self) -> "tuple[Tensor, ...]":
        from evener.executor.emulated_clock import sleep_until

        left_ns, *tensors = self.inner.wait()
        sleep_until(int(left_ns) + self.latency_ns)
        return tuple(tensors)
