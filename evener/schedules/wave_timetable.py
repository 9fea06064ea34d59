"""The timetable that Chimera, BitPipe and Hanayo have in common: a wave per microbatch.

Time is cut into slots that take one forward or one backward of one stage.  A microbatch moves one
stage per slot, S stages forward and then S back, and the next one of the same direction follows
two slots later.  Stages that go down the workers, up, or down and up again in turn (as in all
three papers) then never ask a worker for two things in one slot, as long as no more than p
microbatches are on their way: these are a unit.  The next unit starts S slots per direction later,
in the very slots that the one before leaves free.

The order is what counts.  Where a backward takes longer than a forward, the slots are stretched.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule
from evener.schedules.entry import StageTimes
from evener.schedules.shape import ScheduleShape


@dataclass(frozen=True)
class WaveTimetable:
    """Microbatches in units of p, those of a unit dealt to the directions.

    placements: per direction, the worker of each stage. In every direction microbatches enter at
        stage 0, so a stage is on as many workers as there are directions.
    """

    shape: ScheduleShape
    placements: tuple[tuple[int, ...], ...]

    def schedule(self, name: str) -> Schedule:
        """Every worker's actions in the order of their slots."""
        lists: list[list[tuple[int, Action]]] = [[] for _ in range(self.shape.num_workers)]
        num_stages = self.shape.num_stages
        for microbatch, start, placement in self._waves():
            for stage, worker in enumerate(placement):
                forward, backward = start + stage, start + 2 * num_stages - 1 - stage
                lists[worker].append((forward, Action(stage, Kind.F, microbatch)))
                lists[worker].append((backward, Action(stage, Kind.B, microbatch)))
        # Two actions share a slot only if p is odd and there are two directions; then neither needs
        # the other, and the lower stage goes first.
        workers = tuple(tuple(action for _, action in sorted(pairs)) for pairs in lists)
        return Schedule(name, num_stages, self.shape.num_microbatches, workers)

    def peak_in_flight(self) -> tuple[int, ...]:
        """Per worker, over its stages: all of a unit's microbatches, or S - s if these are fewer.

        A wave is back at stage s after 2(S - s) slots, in which S - s waves start.
        """
        held = [0] * self.shape.num_workers
        first_unit = min(self.shape.num_workers, self.shape.num_microbatches)
        for placement, number in zip(self.placements, self._dealt(first_unit), strict=True):
            for stage, worker in enumerate(placement):
                held[worker] += min(number, self.shape.num_stages - stage)
        return tuple(held)

    def makespan_ns(self, times: StageTimes) -> int | None:
        """Step time, or None for what has no closed form.

        With k the waves of a unit in one direction, one unit takes S(tF+tB) + (2k-2) max(tF,tB),
        and each further one S(tF+tB) + (2p/d-2)|tF-tB| for d directions; if tF and tB differ, only
        where all units are full.
        """
        p, m = self.shape.num_workers, self.shape.num_microbatches
        num_directions = len(self.placements)
        if num_directions > 1 and p > 1 and p % 2:
            return None
        num_before, last = divmod(m - 1, p)
        longer_ns = max(times.forward_ns, times.backward_ns)
        stretch_ns = longer_ns - min(times.forward_ns, times.backward_ns)
        if num_before and last + 1 < p and stretch_ns:
            return None
        last_waves = -(-(last + 1) // num_directions)
        through_ns = self.shape.num_stages * (times.forward_ns + times.backward_ns)
        between_ns = max(0, 2 * p // num_directions - 2) * stretch_ns
        one_unit_ns = through_ns + (2 * last_waves - 2) * longer_ns
        return one_unit_ns + num_before * (through_ns + between_ns)

    def _waves(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Of every microbatch, its number, its first slot and the workers that it goes through."""
        p, m = self.shape.num_workers, self.shape.num_microbatches
        for unit, first in enumerate(range(0, m, p)):
            microbatch = first
            dealt = self._dealt(min(p, m - first))
            for placement, number in zip(self.placements, dealt, strict=True):
                for wave in range(number):
                    yield microbatch, 2 * (unit * self.shape.num_stages + wave), placement
                    microbatch += 1

    def _dealt(self, number: int) -> list[int]:
        """How many microbatches of a unit go in each direction."""
        each, more = divmod(number, len(self.placements))
        return [each + (direction < more) for direction in range(len(self.placements))]


def both_ways(placement: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A placement and its mirror image, in which microbatches start at the last worker."""
    last = max(placement)
    return placement, tuple(last - worker for worker in placement)
