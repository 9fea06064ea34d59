"""A small complete set of files, as a person has them after measure, plan, simulate and train."""

import json
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from evener.api import simulate
from evener.cli import main
from evener.cost.profile import LayerCost, LinkCost, Profile
from evener.ir.plan import Plan
from evener.ir.timeline_json import timeline_to_json
from evener.schedules import SCHEDULES, ScheduleShape
from evener.spec import ClusterSpec, JobSpec, ModelSpec, load_toml

MODEL = """\
name = "tiny"
hidden_size = 16
vocabulary_size = 64
pattern = "embedding attention mlp head"

[layer.embedding]
kind = "embedding"

[layer.attention]
kind = "attention"
num_heads = 2
head_dim = 8

[layer.mlp]
kind = "mlp"
intermediate_size = 32

[layer.head]
kind = "head"
"""
CLUSTER = """\
name = "pair"

[[nodes]]
name = "local"
device = "cpu-core"
count = 2
"""
JOB = """\
global_batch_sequences = 4
sequence_length = 8
microbatch_size = 1
clip_norm = 1.0
memory_cap = "100 MiB"
steps = 3
"""
FORWARD_NS = {"embedding": 10_000, "attention": 40_000, "mlp": 30_000, "head": 80_000}


def profile_of(model: ModelSpec, cluster: ClusterSpec) -> Profile:
    """Backward takes twice the forward, half of it for the weights; every tensor has 512 bytes."""
    one, other = cluster.devices
    return Profile(
        model=model.name,
        fingerprint=model.fingerprint(),
        device_type="cpu-core",
        host="by hand",
        dtype="float32",
        layers=tuple(
            LayerCost(
                layer=layer,
                microbatch_size=1,
                sequence_length=8,
                forward_ns=forward_ns,
                backward_ns=2 * forward_ns,
                input_grad_ns=forward_ns,
                weight_grad_ns=forward_ns,
                recompute_ns=forward_ns,
                parameter_bytes=4096,
                activation_bytes=2048,
                weight_gradient_bytes=1024,
                input_bytes=512,
                output_bytes=512,
            )
            for layer, forward_ns in FORWARD_NS.items()
        ),
        links=tuple(
            LinkCost(from_device=a, to_device=b, latency_ns=5_000, bytes_per_s=10**9)
            for a, b in ((one, other), (other, one))
        ),
    )


def plan_of(model: ModelSpec, job: JobSpec) -> Plan:
    """1F1B with two layers in each of two stages."""
    return Plan(
        model=model.name,
        model_fingerprint=model.fingerprint(),
        layer_names=tuple(layer.name for layer in model.layers),
        partition=((0, 2), (2, 4)),
        devices=(("local:0",), ("local:1",)),
        microbatch_size=1,
        sequence_length=8,
        job=job,
        schedule=SCHEDULES["one_f_one_b"](ScheduleShape(2, 4)),
    )


@pytest.fixture(scope="session")
def good_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    for name, text in {"model": MODEL, "cluster": CLUSTER, "job": JOB}.items():
        (folder / f"{name}.toml").write_text(text)
    model = load_toml(folder / "model.toml", ModelSpec)
    cluster = load_toml(folder / "cluster.toml", ClusterSpec)
    profile = profile_of(model, cluster)
    profile.save(folder / "profile.json")
    plan = plan_of(model, load_toml(folder / "job.toml", JobSpec))
    plan.save(folder / "plan.json")
    timeline = timeline_to_json(simulate(plan, profile, cluster))
    (folder / "predicted.json").write_text(timeline)
    (folder / "measured.json").write_text(timeline.replace('"predicted"', '"measured"'))
    (folder / "losses.json").write_text("[4.5, 4.25, 4.0]")
    (folder / "text").mkdir()
    (folder / "text" / "words.py").write_text("words = 'a pipeline of unequal layers'\n" * 8)
    return folder


@pytest.fixture
def here(good_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a copy of all good files."""
    folder = tmp_path / "here"
    shutil.copytree(good_files, folder)
    monkeypatch.chdir(folder)
    return folder


@dataclass(frozen=True)
class Answer:
    """What a command has printed and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, object]:
        """The one line of output as an object."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1, self.out
        values = json.loads(self.out)
        assert isinstance(values, dict)
        return values


Call = Callable[[str], Answer]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs one command in this process: ``call("simulate --schedule gpipe")``."""

    def run(command: str) -> Answer:
        code = main(shlex.split(command))
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return run
