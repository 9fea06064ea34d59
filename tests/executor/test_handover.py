"""Who hands over what, and that an optimizer goes on as if nothing had been."""

import torch
from torch import nn
from torch.optim import SGD

from evener.executor.handover import Kept, Moves, holdings, take_over
from evener.executor.torch_engine import TorchEngine
from evener.executor.worker_model import WorkerModel
from evener.modules.loss import TokenLoss
from evener.modules.optimizer import set_learning_rate
from evener.schedules import ScheduleShape, one_f_one_b
from evener.testing.memory_transport import MemoryTransport, run_in_memory

TRAINED = Kept(learns=True)
BUFFER = Kept(learns=False)


def test_only_what_is_missing_moves_and_the_lowest_holder_gives_it() -> None:
    held = [{"a": TRAINED}, {"b": TRAINED, "c": TRAINED}, {"c": TRAINED}]
    moves = Moves.between(held, [["c"], ["b", "a"], ["a", "c"]])
    assert moves.of_pair == {(0, 1): ["a"], (0, 2): ["a"], (1, 0): ["c"]}


def test_buffers_of_replicas_become_those_of_the_first() -> None:
    held = [{"a": TRAINED, "mean": BUFFER}] * 2
    assert Moves.between(held, [["a", "mean"]] * 2).of_pair == {(0, 1): ["mean"]}


def engine_of(parameter: nn.Parameter | None) -> TorchEngine:
    """An engine whose model is one parameter, or nothing."""
    named = {} if parameter is None else {"weight": parameter}
    model = WorkerModel(stages={}, parameters=named, stepped={0: named}, reduced={})
    engine = TorchEngine(
        one_f_one_b(ScheduleShape(1, 1)),
        model,
        worker=0,
        loss=TokenLoss(),
        device=torch.device("cpu"),
    )
    engine.optimizers = model.make_optimizers(
        lambda parameters: SGD(parameters, lr=0.5, momentum=0.5)
    )
    return engine


def test_an_optimizer_goes_on_on_another_worker() -> None:
    """Gradient 1, momentum 0.5, rate lowered from 0.5 to 0.25 after the first of two steps.

    0 - 0.5 x 1 = -0.5; the momentum is then 1.5, and -0.5 - 0.25 x 1.5 = -0.875.
    """

    def work(transport: MemoryTransport) -> float:
        mine = nn.Parameter(torch.zeros(1)) if transport.worker == 0 else None
        engine = engine_of(mine)
        for optimizer in engine.optimizers.values():
            assert mine is not None
            mine.grad = torch.ones(1)
            optimizer.step()
            set_learning_rate(optimizer, 0.25)
        held = holdings(engine)
        kept = transport.gather({name: each.kept for name, each in held.items()})
        moves = Moves.between(kept, [[], ["weight"]])
        held = moves.run(held, transport, torch.device("cpu"))
        if transport.worker == 0:
            return 0.0
        parameter = nn.Parameter(held["weight"].tensors[0].clone())
        engine = engine_of(parameter)
        take_over(engine, held)
        parameter.grad = torch.ones(1)
        engine.optimizers[0].step()
        return parameter.item()

    assert run_in_memory(2, work)[1] == -0.875
