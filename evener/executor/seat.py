"""The place of a rank in the plan in force, and how it changes to another plan."""

import gc
from dataclasses import replace
from typing import Any

from torch.distributed import (  # type: ignore[attr-defined]  # exported, but not so declared
    PrefixStore,
)

from evener.executor.failure import Progress
from evener.executor.handover import Heritage, Moves, fill, holdings
from evener.executor.launch import Rank
from evener.executor.shared_memory import connect
from evener.executor.torch_transport import TorchTransport
from evener.executor.train import Trainer, TrainOptions, build_held, trainer_connections
from evener.ir.plan import Plan


class Seat:
    """A rank with its transport and its trainer, which are others after ``switch``.

    plan: the first one, of which worker i is rank i.  A rank stays on its device: under a later
        plan it is the worker that has that device.
    """

    def __init__(
        self, rank: Rank, plan: Plan, model: Any, options: TrainOptions, progress: Progress
    ) -> None:
        self._rank = rank
        self.model = model
        self._options = options
        self._progress = progress
        self._devices = plan.devices
        self._num_meetings = 0
        self.plan = plan
        self.transport = self._transport(plan)
        self.trainer = Trainer(plan, model, self.transport, options, progress=progress)
        # What is loaded by now stays: to look through it again at every full collection costs a
        # rank 0.2 s, each at another time, and the others wait.
        gc.freeze()

    def worker_of(self, rank: int) -> int:
        """Who that rank is under the plan in force."""
        return self.plan.devices.index(self._devices[rank])

    def switch(self, plan: Plan) -> None:
        """Go on under another plan of the same devices; all ranks call it between the same steps.

        Whoever lacks a parameter with its optimizer's state gets it from a rank that has it; a
        buffer, which each replica may have changed in its own way, all get from the first that has
        it.  Random numbers, losses and the data of a step do not depend on the plan.
        """
        trainer, device = self.trainer, self._options.device
        held = holdings(trainer.engine)
        self.plan = plan
        worker = self.worker_of(self._rank.index)
        for stage in trainer.model.stages.values():
            stage.detach()
        model = build_held(plan, self.model, worker, self._options)
        kept = {name: holding.kept for name, holding in held.items()}
        told = self.transport.gather((worker, kept, [*model.parameters, *model.rest]))
        told.sort(key=lambda each: each[0])
        moves = Moves.between([each[1] for each in told], [each[2] for each in told])
        self.transport.close()
        if moves.of_pair:
            # A transport of its own, as what carries parameters is large and used once.
            mover = self._meet(list(moves.of_pair), [])
            held = moves.run(held, mover, device)
            mover.close()
        fill(model, held)
        heritage = Heritage(model, held, trainer.step_index, trainer.num_updates)
        self.transport = self._transport(plan)
        self.trainer = Trainer(
            plan,
            self.model,
            self.transport,
            self._options,
            progress=self._progress,
            heritage=heritage,
        )
        del trainer
        gc.unfreeze()  # the old one has to go
        gc.collect()
        gc.freeze()

    def close(self) -> None:
        """Let go of all connections; all ranks call it together."""
        self.transport.close()

    def _transport(self, plan: Plan) -> TorchTransport:
        return self._meet(*trainer_connections(plan))

    def _meet(self, pairs: list[tuple[int, int]], groups: list[tuple[int, ...]]) -> TorchTransport:
        """A transport between all ranks, as workers of the plan in force."""
        self._num_meetings += 1
        store = PrefixStore(f"meeting/{self._num_meetings}", self._rank.store)
        worker = replace(self._rank, index=self.worker_of(self._rank.index), store=store)
        return connect(worker, self._options.device, pairs, groups)
