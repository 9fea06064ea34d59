"""Every slicer by the name that ``ScheduleEntry.slicer`` has."""

from collections.abc import Mapping
from types import MappingProxyType

from evener.planner.slicing.flop_balanced import flop_balanced_slices
from evener.planner.slicing.sppo import sppo_slices
from evener.planner.slicing.terapipe import terapipe_slices
from evener.planner.slicing.uniform import uniform_slices
from evener.planner.slicing.work import Slicer

SLICERS: Mapping[str, Slicer] = MappingProxyType(
    {
        "uniform": uniform_slices,
        "flop_balanced": flop_balanced_slices,
        "terapipe": terapipe_slices,
        "sppo": sppo_slices,
    }
)
"""A new one is a new file and one line here."""
