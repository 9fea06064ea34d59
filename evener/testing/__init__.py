"""Suites that anybody's schedule has to pass, and small worlds to test in."""

from evener.testing.conformance import (
    ConformanceCase,
    check_schedule_generator,
    conformance_cases,
)
from evener.testing.worlds import WORLDS

__all__ = ["WORLDS", "ConformanceCase", "check_schedule_generator", "conformance_cases"]
