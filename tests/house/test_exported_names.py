"""The public surface, pinned: a name that comes or goes is a decision, not an accident."""

import importlib

import evener

# `validate` joins them together with the validation runs.
DATA = [
    "ClusterSpec",
    "JobSpec",
    "ModelSpec",
    "Plan",
    "PlanResult",
    "Profile",
    "Schedule",
    "Timeline",
]
VERBS = ["execute", "export", "find_plan", "measure", "report", "simulate"]


def test_exported_names() -> None:
    # A verb and a floor may share a name (`report`): the verb must win, whatever was imported.
    for floor in ("report", "export"):
        importlib.import_module(f"evener.{floor}")
    assert sorted(evener.__all__) == sorted(DATA + VERBS)
    assert all(isinstance(getattr(evener, name), type) for name in DATA)
    assert all(callable(getattr(evener, name)) for name in VERBS)
