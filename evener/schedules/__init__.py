"""Generators of schedules: each a function from a shape to a compute-only schedule."""

from evener.schedules.entry import PipelineTimes, ScheduleEntry, StageTimes
from evener.schedules.forward_only import forward_only
from evener.schedules.gpipe import gpipe
from evener.schedules.interleaved_one_f_one_b import interleaved_one_f_one_b
from evener.schedules.one_f_one_b import one_f_one_b
from evener.schedules.registry import SCHEDULES
from evener.schedules.shape import ScheduleShape
from evener.schedules.split_backward import split_backward
from evener.schedules.zb_h1 import zb_h1
from evener.schedules.zb_h2 import zb_h2

__all__ = [
    "SCHEDULES",
    "PipelineTimes",
    "ScheduleEntry",
    "ScheduleShape",
    "StageTimes",
    "forward_only",
    "gpipe",
    "interleaved_one_f_one_b",
    "one_f_one_b",
    "split_backward",
    "zb_h1",
    "zb_h2",
]
