"""What is believed of the machines of a run, in which every device is a type of its own.

A profile has costs by type of device.  Whether one of several like devices has become slow can
only be said, and planned for, where it is a type by itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self, TypeAlias

from evener.cost.build import links_of
from evener.cost.profile import LayerCost, LayerKey, LinkCost, Profile
from evener.cost.table import CostTable
from evener.ir.plan import Plan
from evener.planner.plan_costs import costs_of_plan
from evener.planner.problem import Problem
from evener.sim.engine import simulate_many
from evener.spec.cluster import ClusterSpec, NodeSpec
from evener.spec.device import DeviceSpec, LinkSpec
from evener.spec.model import ModelSpec

Way: TypeAlias = Literal["forward", "backward"]

_TIMES: Mapping[Way, tuple[str, ...]] = {
    "forward": ("forward_ns",),
    "backward": ("backward_ns", "input_grad_ns", "weight_grad_ns", "recompute_ns"),
}
"""The fields of a layer's cost that are spent in either way."""


@dataclass(frozen=True)
class World:
    """The devices of a run by rank, with what they and the links between them are believed to cost.

    problem: as planners take it; its devices are the ranks. names: per rank, the device as the
    user's cluster has it.
    """

    problem: Problem
    names: tuple[str, ...]

    @classmethod
    def of(cls, plan: Plan, model: ModelSpec, cluster: ClusterSpec, profile: Profile) -> Self:
        """What a profile says of the devices of a plan, of which worker i is rank i.

        Raises ProfileError if the profile is of another model or lacks layers at the plan's size,
        UsageError if the cluster lacks devices of the plan.
        """
        plan.require_model(model)
        names = tuple(name for (name,) in plan.devices)
        types = [cluster.device(name).type for name in names]
        own = [f"rank{rank}" for rank in range(len(names))]
        size, length = plan.microbatch_size, plan.sequence_length
        layers = []
        for rank, device_type in enumerate(types):
            keys = [LayerKey(config, device_type, size, length) for config in model.layer_configs]
            layers += [
                cost.model_copy(update={"device_type": own[rank]})
                for cost in profile.costs_of(keys)
            ]
        links = tuple(
            LinkCost(
                from_device=f"{own[source]}:0",
                to_device=f"{own[target]}:0",
                latency_ns=link.latency_ns,
                bytes_per_s=link.bytes_per_s,
            )
            for (source, target), link in links_of(names, types, profile, cluster).items()
        )
        by_rank = ClusterSpec(
            name=cluster.name,
            device_types=dict(zip(own, _specs(names, cluster), strict=True)),
            nodes=tuple(NodeSpec(name=rank, device=rank) for rank in own),
            between_nodes=_NEVER_USED,
        )
        costs = profile.model_copy(
            update={"layers": tuple(layers), "links": links, "device_type": own[0]}
        )
        return cls(Problem(model, by_rank, plan.job, costs), names)

    @property
    def num_ranks(self) -> int:
        return len(self.names)

    @cached_property
    def latency_ns(self) -> dict[tuple[int, int], int]:
        """By (source, target) ranks."""
        ranks = {device: rank for rank, device in enumerate(self.problem.cluster.devices)}
        return {
            (ranks[link.from_device], ranks[link.to_device]): link.latency_ns
            for link in self.problem.profile.links
        }

    def by_rank(self, plan: Plan) -> Plan:
        """A plan of the user's devices, on the devices of ``problem``."""
        ranks = {name: rank for rank, name in enumerate(self.names)}
        devices = tuple((f"rank{ranks[name]}:0",) for (name,) in plan.devices)
        return plan.model_copy(update={"devices": devices})

    def by_name(self, plan: Plan) -> Plan:
        """The inverse of ``by_rank``."""
        names = dict(zip(self.problem.cluster.devices, self.names, strict=True))
        devices = tuple((names[device],) for (device,) in plan.devices)
        return plan.model_copy(update={"devices": devices})

    def costs(self, plan: Plan) -> CostTable:
        """What the actions of a plan of the user's devices cost in this world."""
        problem = self.problem
        return costs_of_plan(
            self.by_rank(plan), problem.profile, problem.cluster, model=problem.model
        )

    def step_ns(self, plan: Plan) -> int:
        """The predicted step time of a plan of the user's devices."""
        (outcome,) = simulate_many(plan.lowered(), [self.costs(plan)])
        return outcome.step_ns

    def with_speeds(self, factors: Mapping[int, float]) -> Self:
        """The same with all layers on some ranks slower by a factor."""
        by_type = {f"rank{rank}": factor for rank, factor in factors.items()}
        return self._with_layers(lambda cost, way: by_type.get(str(cost.device_type), 1.0))

    def with_layers(self, factors: Mapping[tuple[str, Way], float]) -> Self:
        """The same with some kinds of layers slower by a factor, on every rank."""
        return self._with_layers(lambda cost, way: factors.get((cost.layer, way), 1.0))

    def with_latencies(self, latency_ns: Mapping[tuple[int, int], int]) -> Self:
        """The same with other latencies between some ranks, by (source, target)."""
        named = {
            (f"rank{source}:0", f"rank{target}:0"): own_ns
            for (source, target), own_ns in latency_ns.items()
        }
        links = [
            link.model_copy(
                update={
                    "latency_ns": named.get((link.from_device, link.to_device), link.latency_ns)
                }
            )
            for link in self.problem.profile.links
        ]
        return self._with(links=links)

    def _with_layers(self, factor: Callable[[LayerCost, Way], float]) -> Self:
        return self._with(
            layers=[
                cost.model_copy(
                    update={
                        name: round(getattr(cost, name) * factor(cost, way))
                        for way, names in _TIMES.items()
                        for name in names
                    }
                )
                for cost in self.problem.profile.layers
            ]
        )

    def _with(self, **parts: Sequence[object]) -> Self:
        update = {name: tuple(values) for name, values in parts.items()}
        profile = self.problem.profile.model_copy(update=update)
        return replace(self, problem=replace(self.problem, profile=profile))


def _specs(names: Sequence[str], cluster: ClusterSpec) -> Iterator[DeviceSpec]:
    """Per device; of a link to the host that several share, each has its part."""
    groups = cluster.host_groups(names)
    for name, group in zip(names, groups, strict=True):
        spec, sharing = cluster.device(name).spec, groups.count(group)
        if spec.host is not None and sharing > 1:
            part = {"bandwidth_bytes_per_s": spec.host.bandwidth_bytes_per_s // sharing}
            spec = spec.model_copy(update={"host": spec.host.model_copy(update=part)})
        yield spec


# A cluster needs a link between its nodes; here the profile has one for every pair.
_NEVER_USED = LinkSpec(bandwidth_bytes_per_s=1, latency_ns=0)
