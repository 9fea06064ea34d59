"""The largest of all lower bounds on the step time of a pipeline."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from types import MappingProxyType

from evener.planner.bounds.chain import chain_ns
from evener.planner.bounds.fill import fill_ns
from evener.planner.bounds.heavy_layer import heavy_layer_ns
from evener.planner.bounds.held_memory import held_memory_ns
from evener.planner.bounds.instance import Instance, quotient_up
from evener.planner.bounds.load import load_ns
from evener.planner.bounds.packing import packing_ns
from evener.planner.bounds.sliced_chain import sliced_chain_ns

Bound = Callable[[Instance], int]
"""No plan in which all workers of the instance run something has a shorter step, in nanoseconds."""

BOUNDS: Mapping[str, Bound] = MappingProxyType(
    {
        "load": load_ns,
        "chain": chain_ns,
        "sliced chain": sliced_chain_ns,
        "heavy layer": heavy_layer_ns,
        "fill": fill_ns,
        "held memory": held_memory_ns,
        "packing": packing_ns,
    }
)
"""Every bound by the name of its proof in ``docs/design/bounds.md``; a new one is one line here."""


@dataclass(frozen=True)
class Proven:
    """No plan has a shorter step than ``step_ns``. proof: a name in ``BOUNDS``."""

    step_ns: int
    proof: str


def lower_bound(*instances: Instance) -> Proven:
    """No plan of any of the instances, with all of its workers or only some, has a shorter step.

    For each number of workers the largest of the bounds; of equally large ones the proof that comes
    first in ``BOUNDS``.
    """
    kinds = [
        (quotient_up(used.total_work_ns, num_used), -num_used, used)
        for instance in instances
        for num_used in range(1, min(instance.num_workers, instance.most_workers) + 1)
        for used in [replace(instance, num_workers=num_used)]
    ]
    best: Proven | None = None
    for own_load_ns, _, used in sorted(kinds, key=itemgetter(0, 1)):
        if best is not None and own_load_ns >= best.step_ns:
            break
        proven = _with_all_workers(used)
        if best is None or proven.step_ns < best.step_ns:
            best = proven
    assert best is not None, "an instance is needed"
    return best


def _with_all_workers(instance: Instance) -> Proven:
    proven = [Proven(bound(instance), proof) for proof, bound in BOUNDS.items()]
    return max(proven, key=lambda each: each.step_ns)
