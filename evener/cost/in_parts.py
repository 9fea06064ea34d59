"""What a schedule costs where the job has the head, or microbatches, in parts."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from evener.cost.build import cost_table
from evener.cost.profile import Profile
from evener.cost.slices import Slicing, layers_of_workers, sliced_costs
from evener.cost.spread_head import spread_cost_table
from evener.cost.table import CostTable
from evener.ir.schedule import Schedule
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec


def cost_table_in_parts(
    schedule: Schedule,
    *,
    layers: Sequence[str],
    partition: Sequence[tuple[int, int]],
    profile: Profile,
    job: JobSpec,
    head_of: ModelSpec | None,
    slicing: Slicing | None,
    **rest: Any,
) -> CostTable:
    """``cost_table``, or what spreads the head and cuts into slices, as the job has it.

    head_of: the model, if its head is spread. slicing: None where microbatches are whole.

    Raises what ``cost_table`` raises.
    """
    table = cost_table if head_of is None else partial(spread_cost_table, model=head_of)

    def price(profile: Profile) -> CostTable:
        return table(schedule, layers=layers, partition=partition, profile=profile, job=job, **rest)

    if slicing is None:
        return price(profile)
    held = layers_of_workers(schedule, partition, layers)
    return sliced_costs(price, profile, slicing, held=held)
