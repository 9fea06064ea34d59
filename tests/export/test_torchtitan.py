"""Settings of torchtitan: written, read back, and refused where it would build something else."""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evener.errors import ExportError, PlanError, ScheduleError
from evener.export.parts import StageParts
from evener.export.torchtitan import Torchtitan
from evener.export.torchtitan_reader import TorchtitanReader
from evener.ir.plan import Plan
from evener.ir.schedule import Schedule
from evener.ir.text import parse_action
from evener.schedules import ScheduleShape, interleaved_one_f_one_b, one_f_one_b, zb_h1
from evener.spec.job import JobSpec

V_SHAPED = Schedule(
    "v",
    4,
    1,
    tuple(
        tuple(parse_action(word) for word in row.split())
        for row in ("0F0 3F0 3I0 0B0 3W0", "1F0 2F0 2B0 1B0")
    ),
)
SETTINGS = {
    "parallelism": {
        "pipeline_parallel_degree": 2,
        "pipeline_parallel_schedule": "1F1B",
        "pipeline_parallel_schedule_csv": "order.csv",
        "module_fqns_per_model_part": [["tok_embeddings", "layers.0"], ["norm", "output"]],
        "pipeline_parallel_microbatch_size": 2,
        "data_parallel_shard_degree": 1,
    },
    "training": {"local_batch_size": 4, "seq_len": 8},
}


def reasons(plan: Plan, model: Any) -> list[str]:
    return [str(reason) for reason in Torchtitan().unsupported(plan, model)]


def read(tmp_path: Path, csv: str = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", **changes: Any) -> Any:
    """Read the settings above with changes, as the JSON that torchtitan saves."""
    settings = json.loads(json.dumps(SETTINGS))
    for key, value in changes.items():
        section = "training" if key in settings["training"] else "parallelism"
        settings[section][key] = value
    (tmp_path / "order.csv").write_text(csv, encoding="utf-8")
    (tmp_path / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    return TorchtitanReader().read(tmp_path / "settings.json")


def refusal(tmp_path: Path, *csv: str, **changes: Any) -> list[str]:
    with pytest.raises(PlanError) as caught:
        read(tmp_path, *csv, **changes)
    return list(caught.value.violations)


def test_golden_files(make_plan: Any, make_model: Any, tmp_path: Path) -> None:
    plan = make_plan(one_f_one_b(ScheduleShape(2, 3)), model=make_model(3), cuts=(3,), replicas=2)
    Torchtitan().write(plan, tmp_path / "tiny.py", make_model(3))
    assert (tmp_path / "tiny_schedule.csv").read_text(encoding="utf-8") == (
        "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"
    )
    text = (tmp_path / "tiny.py").read_text(encoding="utf-8")
    # Ranks are numbered pipeline first, the plan lists replica by replica.
    assert text.startswith(
        '"""tiny by one_f_one_b, for torchtitan 0.3; written by evener.\n\n'
        "rank 0: node0/0\nrank 1: node0/2\nrank 2: node0/1\nrank 3: node0/3\n"
        '"""\n\nfrom pathlib import Path\n\n'
        "PARALLELISM = {\n"
        '    "pipeline_parallel_degree": 2,\n'
        '    "pipeline_parallel_schedule": "1F1B",\n'
        '    "pipeline_parallel_schedule_csv": "tiny_schedule.csv",\n'
        '    "pipeline_parallel_microbatch_size": 1,\n'
        '    "module_fqns_per_model_part": [\n'
        '        ["tok_embeddings", "layers.0"],\n'
        '        ["layers.1", "layers.2", "norm", "lm_head"],\n'
        "    ],\n"
        '    "data_parallel_replicate_degree": 2,\n'
        '    "data_parallel_shard_degree": 1,\n'
        "}\n\n"
        'TRAINING = {\n    "local_batch_size": 3,\n    "global_batch_size": 6,\n'
        '    "seq_len": 8,\n}\n'
    )


def test_the_module_changes_a_configuration(
    make_plan: Any, make_model: Any, tmp_path: Path
) -> None:
    plan = make_plan(one_f_one_b(ScheduleShape(2, 3)), model=make_model(3), cuts=(3,))
    Torchtitan().write(plan, tmp_path / "tiny.py", make_model(3))
    spec = importlib.util.spec_from_file_location("tiny", tmp_path / "tiny.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = SimpleNamespace(
        parallelism=SimpleNamespace(pipeline_parallel_degree=1, tensor_parallel_degree=1),
        training=SimpleNamespace(local_batch_size=8, steps=10),
    )
    assert module.with_plan(config) is config
    assert config.parallelism.pipeline_parallel_degree == 2
    assert config.training.local_batch_size == 3
    assert config.training.steps == 10
    # Found from wherever the trainer is started.
    csv = config.parallelism.pipeline_parallel_schedule_csv
    assert csv == str(tmp_path / "tiny_schedule.csv")


@pytest.mark.parametrize(
    ("schedule", "cuts", "name"),
    [
        (zb_h1(ScheduleShape(3, 4)), (3, 5), "1F1B"),
        (interleaved_one_f_one_b(ScheduleShape(2, 4, 2)), (1, 5, 9), "Interleaved1F1B"),
        (V_SHAPED, (3, 5, 7), "ZBVZeroBubble"),
    ],
    ids=lambda value: value.name if isinstance(value, Schedule) else "",
)
def test_plans_round_trip(
    schedule: Schedule, cuts: Any, name: str, make_plan: Any, make_model: Any, tmp_path: Path
) -> None:
    model = make_model(4)
    plan = make_plan(schedule, model=model, cuts=cuts, replicas=2)
    Torchtitan().write(plan, tmp_path / "tiny.py", model)
    assert f'"pipeline_parallel_schedule": "{name}"' in (tmp_path / "tiny.py").read_text()
    imported = TorchtitanReader().read(tmp_path / "tiny.py")
    devices = [device for (device,) in plan.devices]
    again = imported.plan(model, devices=devices, job=JobSpec())
    assert again.schedule.workers == plan.schedule.workers
    assert (again.partition, again.replicas) == (plan.partition, plan.replicas)
    assert again.job.num_sequences == plan.job.num_sequences


def test_settings_that_torchtitan_saves_are_read(tmp_path: Path) -> None:
    imported = read(tmp_path)
    assert imported.parts == (StageParts(True, 1, False), StageParts(False, 0, True))
    assert imported.schedule.workers == one_f_one_b(ScheduleShape(2, 2)).workers
    assert (imported.microbatch_size, imported.sequence_length) == (2, 8)


def test_settings_of_earlier_versions_are_read(tmp_path: Path) -> None:
    (tmp_path / "order.csv").write_text("0F0,0B0\n")
    (tmp_path / "run.toml").write_text(
        """
        [training]
        local_batch_size = 1
        seq_len = 8
        [parallelism]
        pipeline_parallel_degree = 1
        pipeline_parallel_schedule_csv = "order.csv"
        module_fqns_per_model_part = [["tok_embeddings", "layers.0", "norm", "output"]]
        """
    )
    assert TorchtitanReader().read(tmp_path / "run.toml").parts == (StageParts(True, 1, True),)


def test_what_settings_are_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, local_batch_size=3, pipeline_parallel_degree=4) == [
        "the CSV has 2 ranks, the settings have 4: make them equal",
        "the CSV has 4 sequences per rank, the settings have 3: make them equal",
    ]
    key = "parallelism.module_fqns_per_model_part"
    assert refusal(
        tmp_path, module_fqns_per_model_part=None, pipeline_parallel_schedule_csv=""
    ) == [
        f"{key} is missing: write the modules of each stage",
        (
            "parallelism.pipeline_parallel_schedule_csv is missing: write the order of the "
            "schedule to a CSV and name it"
        ),
    ]
    modules = [["tok_embeddings", "layers.1"], ["norm", "lm_head"]]
    assert refusal(tmp_path, module_fqns_per_model_part=modules) == [
        (
            f"{key}: write tok_embeddings, layers.0, layers.1 and so on, norm, lm_head, each once "
            "and in this order, not tok_embeddings layers.1 norm lm_head"
        )
    ]
    modules = [["tok_embeddings", "layers.0", "norm"], ["lm_head"]]
    assert refusal(tmp_path, module_fqns_per_model_part=modules) == [
        f"{key}: norm and lm_head are one layer of a plan; put them on one stage"
    ]
    modules = [["tok_embeddings", "layers.0", "norm", "lm_head"], []]
    assert refusal(tmp_path, module_fqns_per_model_part=modules) == [
        f"{key}: a stage has no modules; give it at least one layer"
    ]
    assert refusal(tmp_path, tensor_parallel_degree=2, seq_len=True) == [
        (
            "parallelism.tensor_parallel_degree is 2: a plan has one device a worker and whole "
            "replicas; set it to 1"
        ),
        "training.seq_len is True: write a whole number of at least 1",
    ]


def test_stages_must_be_built_where_they_run(tmp_path: Path) -> None:
    (reason,) = refusal(tmp_path, "1F0,1B0,1F1,1B1\n0F0,0F1,0B0,0B1\n")
    assert reason == (
        "the CSV runs stages 0 to 1 on ranks 1 0, but torchtitan builds them for 1F1B elsewhere: "
        "name a schedule with the same placement"
    )


def test_a_schedule_that_cannot_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match="1F1 is missing"):
        read(tmp_path, "0F0,0F1,0B0,0B1\n1F0,1B0\n")


@pytest.mark.parametrize(
    ("name", "text"), [("a.py", "PARALLELISM = 1 +"), ("a.toml", "="), ("a.json", "[1]")]
)
def test_what_is_no_settings_file(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(PlanError, match=f"{name} cannot be read"):
        TorchtitanReader().read(tmp_path / name)


def test_a_module_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("PARALLELISM = exit()\n")
    with pytest.raises(PlanError, match=r"a\.py cannot be read"):
        TorchtitanReader().read(tmp_path / "a.py")


def test_all_that_torchtitan_cannot_express_comes_at_once(
    make_plan: Any, make_model: Any, tmp_path: Path
) -> None:
    rows = ("0F0 2F0 2B0 0B0", "1F0 1B0")
    workers = tuple(tuple(parse_action(word) for word in row.split()) for row in rows)
    plan = make_plan(Schedule("uneven", 3, 1, workers), model=make_model(2, tied=True), cuts=(2, 4))
    assert [text.split(":")[0] for text in reasons(plan, make_model(2, tied=True))] == [
        "stage 1 begins with mlp_2, inside a transformer block",
        "stage 2 begins with mlp_4, inside a transformer block",
        "stages 0 and 2 share parameters",
        "worker 0 holds 2 stages and worker 1 holds 1",
    ]
    with pytest.raises(ExportError, match="torchtitan cannot express this plan"):
        Torchtitan().write(plan, tmp_path / "tiny.py", make_model(2, tied=True))
    assert list(tmp_path.iterdir()) == []


def test_other_placements_are_refused(make_plan: Any, make_model: Any) -> None:
    rows = ("0F0 1F0 1B0 0B0", "2F0 3F0 3B0 2B0")
    workers = tuple(tuple(parse_action(word) for word in row.split()) for row in rows)
    plan = make_plan(Schedule("blocked", 4, 1, workers), model=make_model(4), cuts=(3, 5, 7))
    assert reasons(plan, make_model(4)) == [
        (
            "stages 0 to 3 are on workers 0 0 1 1: torchtitan builds stage s on rank s modulo the "
            "number of ranks, or a V of two stages per rank; plan with one of these placements"
        )
    ]
