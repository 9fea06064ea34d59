"""A plan from flags of Megatron-LM, written for torchtitan: no GPU, no torch."""

from pathlib import Path
from tempfile import TemporaryDirectory

import evener
from evener.errors import ExportError
from evener.export.registry import EXPORTERS, IMPORTERS
from evener.spec import load_toml

MODEL = Path(__file__).parent.parent / "recipes/models/llama3-8b.toml"
FLAGS = """
MEGATRON_RANKS=8
MEGATRON_ARGS=(
    --pipeline-model-parallel-size 4
    --pipeline-model-parallel-layout 'Et*3|(t*4|)*6t*5,L'
    --num-layers 32
    --untie-embeddings-and-output-weights
    --micro-batch-size 1
    --global-batch-size 16
    --seq-length 4096
)
"""

model = load_toml(MODEL, evener.ModelSpec)
with TemporaryDirectory() as folder:
    flags, module = Path(folder) / "flags.sh", Path(folder) / "llama.py"
    flags.write_text(FLAGS, encoding="utf-8")
    imported = IMPORTERS["megatron"].read(flags)
    devices = [f"node{rank // 4}/{rank % 4}" for rank in range(8)]
    plan = imported.plan(model, devices=devices, job=evener.JobSpec())
    print(f"{plan.schedule.name}: {plan.replicas} replicas, partition {plan.partition}")
    EXPORTERS["torchtitan"].write(plan, module, model)
    print(module.read_text(encoding="utf-8").partition("\n\ndef ")[0].rstrip())
    print((Path(folder) / "llama_schedule.csv").read_text(encoding="utf-8").split("\n")[0])

try:
    EXPORTERS["torch_csv"].write(plan, "schedule.csv", model)
except ExportError as error:
    print(error)
