"""How many bytes a worker holds: always, and per microbatch in flight.

Always: parameters, gradients, optimizer states and, where the optimizer works in another number
format than the parameters, its copy of them (Rajbhandari et al., "ZeRO", SC 2020, section 3.1;
nothing is sharded), and room for the backward that runs.  Per microbatch: what ``ir.rules`` takes
and gives.
"""

from collections.abc import Sequence

from evener.cost.profile import LayerCost
from evener.ir.rules import Resource
from evener.spec.fields import DTYPE_BYTES, Dtype
from evener.spec.job import JobSpec


def model_state_bytes(
    parameter_bytes: int, dtype: Dtype, job: JobSpec, *, updates: bool = True, num_versions: int = 1
) -> int:
    """Parameters, gradients and optimizer states of a stage, in the job's number formats.

    parameter_bytes: of the stage's parameters in the format ``dtype``.
    updates: whether the worker updates them itself, for which it keeps the optimizer states.
    num_versions: versions of the parameters that are kept.
    """
    num_parameters = parameter_bytes // DTYPE_BYTES[dtype]
    formats = job.dtypes
    kept = [formats.parameters] * num_versions + [formats.gradients]
    if updates:
        kept += [formats.optimizer] * job.optimizer.states_per_parameter
        if formats.optimizer != formats.parameters:
            kept.append(formats.optimizer)
    return num_parameters * sum(DTYPE_BYTES[each] for each in kept)


def working_bytes(stages: Sequence[Sequence[LayerCost]], *, recomputed: bool) -> int:
    """Room that a worker with these stages needs beside what it keeps, for the backward that runs.

    The gradients inside the layer that runs its backward are at most as large as what its forward
    saved (for the head: the gradient of the logits).  Where forwards are recomputed inside the
    backward, the activations of one microbatch come back besides.
    """
    gradients = max((cost.activation_bytes for stage in stages for cost in stage), default=0)
    if not recomputed:
        return gradients
    return gradients + max((_activation_bytes(stage) for stage in stages), default=0)


def unit_bytes(stage: Sequence[LayerCost], *, recomputed: bool) -> dict[Resource, int]:
    """Sizes of what one microbatch takes at a stage.

    recomputed: the forward keeps its input alone and is repeated inside the backward, so what is
    kept per microbatch is no more than a checkpoint.
    """
    return {
        Resource.ACTIVATION: stage[0].input_bytes if recomputed else _activation_bytes(stage),
        Resource.OFFLOADED: 0,
        Resource.CHECKPOINT: stage[0].input_bytes,
        Resource.WEIGHT_GRADIENT: sum(cost.weight_gradient_bytes for cost in stage),
        Resource.INPUT: stage[0].input_bytes,
        Resource.OUTPUT_GRADIENT: stage[-1].output_bytes,
        Resource.PARAMETERS: sum(cost.parameter_bytes for cost in stage),
    }


def _activation_bytes(stage: Sequence[LayerCost]) -> int:
    return sum(cost.activation_bytes for cost in stage)
