"""Random legal schedules of every shape that the rules allow, and ways to break them.

``random_schedule`` draws sizes, who runs what, which cells split their backward, recompute or
offload, and then plays the rules by chance: among all actions that may come next, any one comes
next.  So every legal interleaving can appear.  Same seed, same schedule.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from evener.ir.action import Action, Kind
from evener.ir.check import violations
from evener.ir.passes import lower
from evener.ir.schedule import MESSAGE_KINDS, Cell, Schedule


@dataclass(frozen=True)
class Limits:
    """The largest sizes that are drawn."""

    num_stages: int = 6
    num_workers: int = 5
    num_microbatches: int = 6
    num_slices: int = 3


def random_schedule(random: Random, limits: Limits = Limits()) -> Schedule:
    """A legal compute-only schedule.

    One in six has a stage graph with skip edges, one in six cuts microbatches into slices.
    """
    num_stages = random.randint(1, limits.num_stages)
    num_workers = random.randint(1, limits.num_workers)
    num_microbatches = random.randint(1, limits.num_microbatches)
    num_slices = random.randint(1, limits.num_slices) if random.random() < 1 / 6 else 1
    shape = Schedule(
        f"random {num_stages}x{num_workers}x{num_microbatches}",
        num_stages,
        num_microbatches,
        workers=((),) * num_workers,
        num_slices=num_slices,
        edges=_random_edges(random, num_stages) if random.random() < 1 / 6 else None,
    )
    return replace(shape, workers=_random_lists(random, shape))


def with_random_braids(random: Random, schedule: Schedule) -> Schedule:
    """A legal compute-only schedule with some of the braids that it allows."""
    for actions in schedule.workers:
        for action in actions:
            if action.kind is Kind.F and random.random() < 1 / 2:
                braided = replace(schedule, braids=schedule.braids | {action})
                if not violations(braided):
                    schedule = braided
    return schedule


def random_durations(random: Random) -> Callable[[int, Action], int]:
    """Times of 1 to 9 that depend on worker, stage and kind."""
    drawn: dict[tuple[int, int, Kind], int] = defaultdict(lambda: random.randint(1, 9))
    return lambda worker, action: drawn[worker, action.stage, action.kind]


def random_lowered_schedule(random: Random, limits: Limits = Limits()) -> Schedule:
    """A legal schedule as it runs: with messages, reductions (also tied), norm and steps."""
    schedule = random_schedule(random, limits)
    tied = []
    if schedule.num_stages > 1 and random.random() < 1 / 3:
        first, second = sorted(random.sample(range(schedule.num_stages), 2))
        tied = [(first, second)]
    return lower(
        schedule,
        tied=tied,
        clip=random.random() < 1 / 2,
        durations_ns=random_durations(random),
    )


def mutate(random: Random, schedule: Schedule) -> Schedule:
    """Break the schedule at one place, if chance does not put it back as it was."""
    workers = [list(actions) for actions in schedule.workers]
    place = random.choice([w for w, actions in enumerate(workers) if actions])
    random.choice((_swap, _swap_messages, _drop, _duplicate, _move, _renumber))(
        random, workers, workers[place]
    )
    return replace(schedule, workers=tuple(map(tuple, workers)))


def _random_edges(random: Random, num_stages: int) -> tuple[tuple[int, int], ...]:
    """The chain and some edges that skip stages; sometimes a chain that is cut."""
    edges = {(stage, stage + 1) for stage in range(num_stages - 1) if random.random() < 0.9}
    for _ in range(2):
        if num_stages > 2:
            first, second = sorted(random.sample(range(num_stages), 2))
            edges.add((first, second))
    return tuple(sorted(edges))


def _random_runner(random: Random, shape: Schedule) -> dict[tuple[int, int], int]:
    """The worker of each (stage, microbatch): stages on one worker, or on some of them."""
    data_parallel = random.random() < 1 / 2
    runner = {}
    for stage in range(shape.num_stages):
        width = random.randint(1, shape.num_workers) if data_parallel else 1
        group = random.sample(range(shape.num_workers), width)
        for microbatch in range(shape.num_microbatches):
            runner[stage, microbatch] = random.choice(group)
    return runner


def _random_lists(random: Random, shape: Schedule) -> tuple[tuple[Action, ...], ...]:
    runner = _random_runner(random, shape)
    needs = dict(_random_actions(random, shape))
    followers: dict[Action, list[Action]] = defaultdict(list)
    for action, needed in needs.items():
        for other in needed:
            followers[other].append(action)
    num_open = {action: len(needed) for action, needed in needs.items()}
    ready = [action for action, number in num_open.items() if not number]
    lists: list[list[Action]] = [[] for _ in range(shape.num_workers)]
    while ready:
        position = random.randrange(len(ready))
        ready[position], ready[-1] = ready[-1], ready[position]
        action = ready.pop()
        assert action.microbatch is not None
        lists[runner[action.stage, action.microbatch]].append(action)
        for follower in followers[action]:
            num_open[follower] -= 1
            if not num_open[follower]:
                ready.append(follower)
    return tuple(map(tuple, lists))


def _random_actions(random: Random, shape: Schedule) -> Iterator[tuple[Action, list[Action]]]:
    """Every action of every cell, and what it needs."""
    split_share, recompute_share = random.choice((0, 0.5, 1)), random.choice((0, 0, 0.5, 1))
    offload_share = random.choice((0, 0, 0, 0.5))
    slices = range(shape.num_slices) if shape.num_slices > 1 else (None,)
    cells: list[Cell] = [
        (stage, microbatch, token_slice)
        for stage in range(shape.num_stages)
        for microbatch in range(shape.num_microbatches)
        for token_slice in slices
    ]
    backward = {cell: Kind.I if random.random() < split_share else Kind.B for cell in cells}

    def action(cell: Cell, kind: Kind) -> Action:
        return Action(cell[0], kind, cell[1], cell[2])

    for cell in cells:
        stage, microbatch, token_slice = cell
        before: list[Cell] = []
        after: list[Cell] = []
        if token_slice:
            before.append((stage, microbatch, token_slice - 1))
        if token_slice is not None and token_slice + 1 < shape.num_slices:
            after.append((stage, microbatch, token_slice + 1))
        before += [(other, microbatch, token_slice) for other in shape.predecessors[stage]]
        after += [(other, microbatch, token_slice) for other in shape.successors[stage]]
        yield action(cell, Kind.F), [action(other, Kind.F) for other in before]
        last = action(cell, Kind.F)
        if random.random() < offload_share:
            for kind in (Kind.OFFLOAD, Kind.FREE, Kind.RELOAD):
                yield action(cell, kind), [last]
                last = action(cell, kind)
        if random.random() < recompute_share:
            yield action(cell, Kind.R), [last]
            last = action(cell, Kind.R)
        gradients = [action(other, backward[other]) for other in after]
        yield action(cell, backward[cell]), [last, *gradients]
        if backward[cell] is Kind.I:
            yield action(cell, Kind.W), [action(cell, Kind.I)]


def _swap(random: Random, workers: list[list[Action]], actions: list[Action]) -> None:
    del workers
    first, second = random.choices(range(len(actions)), k=2)
    actions[first], actions[second] = actions[second], actions[first]


def _swap_messages(random: Random, workers: list[list[Action]], actions: list[Action]) -> None:
    places = [place for place, action in enumerate(actions) if action.kind in MESSAGE_KINDS]
    if len(places) < 2:
        _swap(random, workers, actions)
        return
    first, second = random.sample(places, 2)
    actions[first], actions[second] = actions[second], actions[first]


def _drop(random: Random, workers: list[list[Action]], actions: list[Action]) -> None:
    del workers
    actions.pop(random.randrange(len(actions)))


def _duplicate(random: Random, workers: list[list[Action]], actions: list[Action]) -> None:
    target = random.choice((actions, random.choice(workers)))
    target.insert(random.randint(0, len(target)), random.choice(actions))


def _move(random: Random, workers: list[list[Action]], actions: list[Action]) -> None:
    action = actions.pop(random.randrange(len(actions)))
    target = random.choice((actions, random.choice(workers)))
    target.insert(random.randint(0, len(target)), action)


def _renumber(random: Random, workers: list[list[Action]], actions: list[Action]) -> None:
    """Another stage, microbatch, slice or kind, perhaps out of range."""
    del workers
    place = random.randrange(len(actions))
    action, step = actions[place], random.choice((-1, 1))
    actions[place] = random.choice(
        (
            action._replace(stage=action.stage + step),
            action._replace(microbatch=(action.microbatch or 0) + step),
            action._replace(slice=(action.slice or 0) + step),
            action._replace(kind=random.choice((Kind.F, Kind.B, Kind.I, Kind.W, Kind.SEND_F))),
        )
    )
