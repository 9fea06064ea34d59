"""Plan a model of unequal layers from a measured profile: no GPU, no torch."""

from pathlib import Path

import evener
from evener.spec import load_toml

RECIPES = Path(__file__).parent.parent / "recipes"

model = load_toml(RECIPES / "models/nemotron-nano-v2-9b.toml", evener.ModelSpec)
cluster = load_toml(RECIPES / "clusters/four-gpus.toml", evener.ClusterSpec)
profile = evener.Profile.load(RECIPES / "profiles/nemotron-nano-v2-9b.json")
job = load_toml(RECIPES / "jobs/nemotron-step.toml", evener.JobSpec)
for planner in ("uniform", "sweep"):
    found = evener.find_plan(model, cluster, job, profile, planner=planner)
    print(
        f"{planner:8} {found.best.schedule.name:24} {found.objective_ns / 1e6:7.1f} ms, "
        f"at most {found.gap:.1%} above the best possible"
    )
