"""Lists of actions in which one changes its place."""

from evener.compiled import uncounted
from evener.planner.joint.world import Int


@uncounted
def put(row: Int, source: int, target: int) -> None:
    """Move what stands at one place to another one; what stands in between gives way."""
    moved = row[source]
    step = 1 if target > source else -1
    for place in range(source, target, step):
        row[place] = row[place + step]
    row[target] = moved
