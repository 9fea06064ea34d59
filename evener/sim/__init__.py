"""The simulator: when every action of a schedule starts and ends, and what every worker holds."""

from evener.sim.engine import Outcome, makespans, simulate, simulate_many
from evener.sim.stats import Bubbles, bubbles

__all__ = ["Bubbles", "Outcome", "bubbles", "makespans", "simulate", "simulate_many"]
