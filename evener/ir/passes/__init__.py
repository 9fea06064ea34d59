from evener.ir.passes.first_updates import first_updates, without_steps
from evener.ir.passes.insert_messages import insert_messages
from evener.ir.passes.insert_offload import insert_offload, offloadable
from evener.ir.passes.insert_recompute import insert_recompute
from evener.ir.passes.insert_step import insert_step
from evener.ir.passes.lower import lower
from evener.ir.passes.replicate import replicate
from evener.ir.passes.spread_head import spread_head

__all__ = [
    "first_updates",
    "insert_messages",
    "insert_offload",
    "insert_recompute",
    "insert_step",
    "lower",
    "offloadable",
    "replicate",
    "spread_head",
    "without_steps",
]
