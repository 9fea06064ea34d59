"""An engine that freezes parameters, microbatch by microbatch."""

from collections.abc import Mapping

from torch import nn

from evener.executor.engine import Engine
from evener.ir.action import Action, Kind
from evener.ir.freezing import Freezing
from evener.modules.freezing import draw_frozen, frozen

# The actions that leave a graph for a backward.
_FORWARDS = frozenset({Kind.F, Kind.R})


class FreezingEngine:
    """Has another engine's forwards leave parameters out of their backward (``engine.Engine``).

    engine: does the work. stages: the modules that it runs, by stage. seed: of the draws.

    A run that freezes nothing does without this class, so it costs such a run nothing.
    """

    def __init__(self, engine: Engine, stages: Mapping[int, nn.Module], *, seed: int) -> None:
        self.signature = engine.signature
        self.payload = engine.payload
        self.accept = engine.accept
        self.collective = engine.collective
        self.copy = engine.copy
        self._run = engine.run
        self._parameters = {
            index: [each for each in stage.parameters() if each.requires_grad]
            for index, stage in stages.items()
        }
        self._seed = seed
        self._step = 0
        self._freezing: Freezing | None = None

    def freeze(self, freezing: Freezing | None, *, step: int) -> None:
        """Say what the next step freezes. step: its number, which the draws depend on."""
        self._freezing, self._step = freezing, step

    def run(self, action: Action) -> None:
        """Do a compute action; see ``engine.Engine``."""
        if self._freezing is None or action.kind not in _FORWARDS:
            self._run(action)
            return
        assert action.microbatch is not None, f"{action} has no microbatch"
        chosen = draw_frozen(
            self._parameters[action.stage],
            self._freezing.of(action.stage, action.microbatch),
            seed=self._seed,
            step=self._step,
            stage=action.stage,
            microbatch=action.microbatch,
        )
        with frozen(chosen):
            self._run(action)
