"""What a file of another system says of a plan, and what it takes to make one of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from evener.errors import PlanError
from evener.export.parts import StageParts, partition_of
from evener.ir.plan import Plan, tied_stages
from evener.ir.schedule import Schedule
from evener.spec.job import JobSpec
from evener.spec.model import ModelSpec


@dataclass(frozen=True)
class Imported:
    """A plan without its model and devices.

    schedule: compute actions only, proven. parts: per stage, what it holds. replicas: how often
    the pipeline stands side by side. microbatch_size: sequences per microbatch.
    sequence_length: tokens per sequence. tied: whether embedding and head share their matrix;
    None where the file does not say.
    """

    schedule: Schedule
    parts: tuple[StageParts, ...]
    replicas: int
    microbatch_size: int
    sequence_length: int
    tied: bool | None = None

    def plan(self, model: ModelSpec, *, devices: Sequence[str], job: JobSpec) -> Plan:
        """The plan for a model.

        devices: one per worker, replica by replica. job: optimizer, dtypes and limits; batch and
            lengths are the file's.

        Raises PlanError if the file is for another model or number of devices.
        """
        num_sequences = self.schedule.num_microbatches * self.replicas * self.microbatch_size
        sizes = {
            "global_batch_sequences": num_sequences,
            "global_batch_tokens": None,
            "sequence_length": self.sequence_length,
            "microbatch_size": self.microbatch_size,
        }
        partition = partition_of(self.parts, model)
        num_workers = self.schedule.num_workers * self.replicas
        if len(devices) != num_workers:
            raise PlanError(
                f"{len(devices)} devices for {num_workers} workers in {self.replicas} replicas: "
                "give one for each"
            )
        if self.tied not in (None, model.tied_embeddings):
            raise PlanError(_otherwise_tied(model))
        return Plan(
            model=model.name,
            model_fingerprint=model.fingerprint(),
            layer_names=tuple(layer.name for layer in model.layers),
            partition=partition,
            devices=tuple((device,) for device in devices),
            replicas=self.replicas,
            microbatch_size=self.microbatch_size,
            sequence_length=self.sequence_length,
            job=job.model_copy(update=sizes),
            tied=tied_stages(model, partition),
            schedule=self.schedule,
        )


class Importer(Protocol):
    """Reads plans in the format of another system."""

    def read(self, path: Path | str) -> Imported:
        """Read and prove. Raises PlanError or ScheduleError with all that is wrong."""
        ...


def _otherwise_tied(model: ModelSpec) -> str:
    which = ("shares", "does not") if model.tied_embeddings else ("does not share", "does")
    return (
        f'model "{model.name}" {which[0]} the matrix of embedding and head, the file {which[1]}: '
        "give the model that the file is for"
    )
