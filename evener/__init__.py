"""Evener plans, simulates and runs the training of large models when nothing is equal."""

from evener.api import execute, export, find_plan, measure, report, simulate
from evener.cost.profile import Profile
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.ir.timeline import Timeline
from evener.planner.result import PlanResult
from evener.spec import ClusterSpec, JobSpec, ModelSpec

__version__ = "0.1.0"

__all__ = [
    "ClusterSpec",
    "JobSpec",
    "ModelSpec",
    "Plan",
    "PlanResult",
    "Profile",
    "Schedule",
    "Timeline",
    "execute",
    "export",
    "find_plan",
    "measure",
    "report",
    "simulate",
]
