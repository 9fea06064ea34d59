"""Changes of plans in a run: what every rank does between two steps."""

from types import TracebackType

from evener.executor.seat import Seat
from evener.ir.timeline import Timeline
from evener.planner.replan.options import Replan
from evener.planner.replan.replanner import Replanner, Switch


class Replanning:
    """Asks rank 0 every few steps whether there is a better plan; does nothing if not wanted.

    All ranks make the same calls.  The question is a collective between two steps, so that all
    hear of a new plan between the same two.  If finding plans fails, rank 0 says so, and training
    goes on with the plan that it has.

    switches: those made so far.
    """

    def __init__(self, options: Replan | None, seat: Seat, *, is_first: bool) -> None:
        self.switches: list[Switch] = []
        self._seat = seat
        self._every = 0 if options is None else options.window
        self._replanner = None
        if options is not None and is_first:
            self._tell = options.tell
            self._replanner = Replanner(options, seat.plan, options.world(seat.plan, seat.model))

    def note(self, timeline: Timeline) -> None:
        """A step was made."""
        if self._replanner is not None:
            try:
                self._replanner.note(timeline)
            except Exception as error:
                self._give_up(error)

    def _proposal(self, step: int) -> Switch | None:
        if self._replanner is not None:
            try:
                return self._replanner.proposal(step)
            except Exception as error:
                self._give_up(error)
        return None

    def _give_up(self, error: Exception) -> None:
        assert self._replanner is not None, "it has failed"
        self._replanner.close()
        self._replanner = None
        what = f"{type(error).__name__}: {error}"
        self._tell(f"re-plan: ends here, and training goes on with the present plan: {what}")

    def switches_before(self, step: int) -> bool:
        """Change the plan before this step, if rank 0 says so; whether it did."""
        if not self._every or step % self._every:
            return False
        seat = self._seat
        switch = seat.transport.gather(self._proposal(step))[seat.worker_of(0)]
        if switch is None:
            return False
        seat.switch(switch.plan)
        self.switches.append(switch)
        return True

    def __enter__(self) -> "Replanning":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._replanner is not None:
            self._replanner.close()
