"""The best plan of a small world: partition by partition, each solved by CP-SAT."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

from evener.planner.exact.solver import minimized
from evener.planner.exact.whole_model import Cut, WholeModel
from evener.planner.joint.orders import Orders
from evener.planner.joint.world import BACKWARD, NEVER, WEIGHT, WHOLE, World


@dataclass(frozen=True)
class Found:
    """orders: of the fastest plan, None if none is faster than was asked for.

    step_ns: of the fastest plan, or what was asked for. least_ns: no plan is faster than that.
    """

    orders: Orders | None
    step_ns: int
    least_ns: int


def longest_ns(world: World) -> int:
    """No plan without needless waits takes longer: one action or message at a time."""
    _, num_microbatches, num_layers, _ = world.sizes.tolist()
    layer_ns = world.until_ns[:, :, -1].max(axis=1).sum() + 4 * num_layers * world.overhead_ns[0]
    message_ns = world.wire_ns.max() + world.latency_ns.max()
    step_ns = world.step_ns[-1] + num_layers * world.overhead_ns[0]
    return int(num_microbatches * (layer_ns + 2 * num_layers * message_ns) + step_ns)


def fastest_below(
    world: World, limit_ns: int, *, at_least_ns: int, stop: Callable[[], bool]
) -> Found:
    """The fastest plan that takes less than the limit.

    at_least_ns: a proven bound; a plan that reaches it ends the search, as ``stop`` does.
    """
    best, step_ns, least_ns = None, limit_ns, limit_ns
    for cut in _partitions(world):
        if step_ns <= at_least_ns:
            break
        if stop():
            return Found(best, step_ns, at_least_ns)
        model = WholeModel(
            world,
            cut,
            at_least_ns=at_least_ns,
            at_most_ns=step_ns - 1,
            can_be_whole=_can_be_whole(world),
        )
        solved = minimized(model.model, stop=stop)
        if solved.has_solution:
            best, step_ns = model.orders(solved), solved.value(model.step)
        if solved.bound is not None:
            least_ns = min(least_ns, solved.bound)
    return Found(best, step_ns, max(at_least_ns, min(least_ns, step_ns)))


def _partitions(world: World) -> Iterator[Cut]:
    """Those of which one has the fastest plan: all of them, or one layer per stage if that is it.

    What a larger stage does, its layers can do one after the other as stages on the same worker,
    and no neighbour waits longer for them.  That costs as much as many actions cost more than one,
    and, where the backward repeats the forward, the inputs that are kept.
    """
    num_layers, again = int(world.sizes[2]), int(world.sizes[3])
    finest = tuple(range(num_layers + 1))
    yield finest
    if world.overhead_ns[0] == 0 and (again == 0 or not _is_limited(world)):
        return
    for count in range(num_layers - 2, -1, -1):
        for borders in combinations(range(1, num_layers), count):
            yield (0, *borders, num_layers)


def _is_limited(world: World) -> bool:
    return bool(world.cap_bytes.min() < NEVER)


def _can_be_whole(world: World) -> bool:
    """Whether a backward in one piece can take less time, or hold less."""
    until_ns = world.until_ns
    two_ns = (until_ns[BACKWARD] + until_ns[WEIGHT])[:, 1:] - (
        until_ns[BACKWARD] + until_ns[WEIGHT]
    )[:, :-1]
    one_ns = until_ns[WHOLE][:, 1:] - until_ns[WHOLE][:, :-1]
    return bool((one_ns < two_ns).any() or world.overhead_ns[0] > 0 or _is_limited(world))
