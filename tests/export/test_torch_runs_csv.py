"""torch trains under what is written here, and finds what a single process finds."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from evener.executor.launch import Rank, run_workers
from evener.executor.verify import tiny_model
from evener.export import TorchCsv
from evener.ir.schedule import Schedule
from evener.modules.reference import build_layers
from evener.schedules import SCHEDULES, ScheduleShape

NUM_WORKERS = 2
NUM_MICROBATCHES = 4
STEPS = 2
LEARNING_RATE = 0.1
FORMS = ("compute_only", "compute_comms")


@dataclass(frozen=True)
class Trained:
    """Losses of all microbatches, step by step (on the ranks that have them), and parameters."""

    losses: list[float]
    parameters: dict[str, Tensor]


def expressible(make_plan: Any) -> dict[str, Schedule]:
    """Every registered schedule on two workers that torch can express."""
    found = {}
    for name, entry in SCHEDULES.items():
        for chunks in (1, 2):
            shape = ScheduleShape(NUM_WORKERS, NUM_MICROBATCHES, chunks)
            if entry.unsupported(shape) is None:
                schedule = entry(shape)
                if not TorchCsv().unsupported(make_plan(schedule)):
                    found[f"{name} with {chunks} chunks"] = schedule
    return found


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    shape = (NUM_MICROBATCHES * 2, 5)
    return [
        tuple(torch.randint(11, (2, *shape), generator=generator))  # type: ignore[misc]
        for _ in range(STEPS)
    ]


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def layers() -> dict[int, nn.Module]:
    return build_layers(tiny_model(6, tied=False, dropout=0.0), dtype=torch.float64, seed=3)


def train_alone() -> Trained:
    model = nn.ModuleDict({str(index): layer for index, layer in layers().items()})
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    losses = []
    for inputs, targets in batches():
        pairs = zip(inputs.chunk(NUM_MICROBATCHES), targets.chunk(NUM_MICROBATCHES), strict=True)
        for x, target in pairs:
            for layer in model.values():
                x = layer(x)
            loss = loss_of(x, target)
            (loss / NUM_MICROBATCHES).backward()
            losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return Trained(losses, {name: p.detach() for name, p in model.named_parameters()})


def train_under(schedule: Schedule, path: Path, form: str, rank: int) -> Trained:
    """What torch makes of the file on one rank."""
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    cuts = [stage * 6 // schedule.num_stages for stage in range(schedule.num_stages + 1)]
    all_layers = layers()
    modules = {
        stage: nn.Sequential(*(all_layers[index] for index in range(*cuts[stage : stage + 2])))
        for stage in schedule.stages_of_worker[rank]
    }
    stages = [
        PipelineStage(module, stage, schedule.num_stages, torch.device("cpu"))
        for stage, module in modules.items()
    ]
    runtime: Any = _PipelineScheduleRuntime(stages, NUM_MICROBATCHES, loss_fn=loss_of)
    runtime._load_csv(str(path), format=form)
    parameters = {
        f"{cuts[stage] + int(index)}.{rest}": parameter
        for stage, module in modules.items()
        for index, _, rest, parameter in (
            (*name.partition("."), parameter) for name, parameter in module.named_parameters()
        )
    }
    optimizer = torch.optim.SGD(parameters.values(), lr=LEARNING_RATE)
    losses: list[float] = []
    for inputs, targets in batches():
        found: list[Tensor] = []
        runtime.step(
            *([inputs] if 0 in modules else []), target=targets, losses=found, return_outputs=False
        )
        losses += [loss.item() for loss in found]
        optimizer.step()
        optimizer.zero_grad()
    return Trained(losses, {name: p.detach() for name, p in parameters.items()})


def train_all(files: dict[Path, tuple[Schedule, str]], rank: Rank) -> dict[Path, Trained]:
    torch.distributed.init_process_group(
        "gloo", store=rank.store, rank=rank.index, world_size=rank.num_ranks
    )
    found = {
        path: train_under(schedule, path, form, rank.index)
        for path, (schedule, form) in files.items()
    }
    torch.distributed.destroy_process_group()
    return found


@pytest.mark.dist
@pytest.mark.timeout(300)
def test_torch_trains_as_one_process_does(make_plan: Any, tmp_path: Path) -> None:
    schedules = expressible(make_plan)
    assert len(schedules) >= 6
    files = {}
    for name, schedule in schedules.items():
        for form in FORMS:
            path = tmp_path / f"{name} {form}.csv"
            TorchCsv(messages=form == "compute_comms").write(make_plan(schedule), path)
            files[path] = (schedule, form)
    expected = train_alone()
    ranks = run_workers(partial(train_all, files), NUM_WORKERS, timeout_s=250)
    for path, (schedule, _) in files.items():
        (last,) = schedule.workers_of_stage[-1]
        losses = torch.tensor(ranks[last][path].losses)
        torch.testing.assert_close(losses, torch.tensor(expected.losses), rtol=0, atol=1e-12)
        parameters = {**ranks[0][path].parameters, **ranks[1][path].parameters}
        assert parameters.keys() == expected.parameters.keys()
        for name, value in expected.parameters.items():
            torch.testing.assert_close(parameters[name], value, rtol=0, atol=1e-12, msg=path.stem)
