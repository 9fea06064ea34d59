"""``evener measure``: time the layers of a model and the links between workers."""

import argparse
import os
from pathlib import Path

from evener.api import measure
from evener.cli.inputs import (
    add_cluster,
    add_job,
    add_json,
    add_model,
    read_cluster,
    read_job,
    read_model,
    require_ranks,
    whole_numbers,
)
from evener.cli.output import (
    print_json,
    print_text,
    progress_bar,
    require_writable,
    warn,
    write_file,
)
from evener.cli.parser import Verbs, add_verb
from evener.cost.profile import Profile
from evener.errors import UsageError
from evener.spec import ClusterSpec, JobSpec, ModelSpec, device_catalogue
from evener.units import format_bytes, format_bytes_per_s, format_ns


def add_parser(verbs: Verbs, name: str) -> None:
    parser = add_verb(
        verbs,
        name,
        does="time the layers of a model and the links between workers",
        about="Reads a model, a cluster and a job; writes a profile. On CPUs it starts one process"
        " per device of the cluster by itself; on GPUs start it with torchrun, one rank per"
        " device.",
        example="evener measure --model model.toml --cluster cluster.toml --out profile.json",
    )
    add_model(parser)
    add_cluster(parser)
    add_job(parser)
    parser.add_argument(
        "--microbatch-sizes", metavar="N,N", help="sequences (default: the job's, or 1)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the profile as JSON")
    parser.add_argument(
        "--dry-run", action="store_true", help="read and check the files, measure nothing"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    model, cluster = read_model(options.model), read_cluster(options.cluster)
    job = read_job(options.job)
    sizes: tuple[int, ...] = (1,) if job.microbatch_size == "auto" else (job.microbatch_size,)
    if options.microbatch_sizes is not None:
        sizes = whole_numbers(options.microbatch_sizes, "--microbatch-sizes")
    require_writable(options.out)
    if options.dry_run:
        _print_intent(model, cluster, job, sizes, options)
        return 0
    if "RANK" in os.environ:
        require_ranks(len(cluster.devices), "measure")
    _require_devices(cluster)
    with progress_bar("measuring", quiet=options.json) as bar:
        profile = measure(
            model,
            cluster,
            job,
            microbatch_sizes=sizes,
            progress=lambda what, done, total: bar.update(
                bar.task_ids[0], completed=done, total=total, news=what
            ),
        )
    if os.environ.get("RANK", "0") != "0":
        return 0  # all ranks have the same profile
    warn(profile.unsteady)
    if options.out is not None:
        write_file(options.out, profile.model_dump_json(indent=1) + "\n")
    if options.json:
        print_json(profile.model_dump(mode="json"))
    else:
        print_text(_as_text(profile))
    return 0


def _require_devices(cluster: ClusterSpec) -> None:
    """Raise UsageError if GPUs are to be measured where there are none.

    What is called by a name of its own is taken for whatever this machine has.
    """
    from evener.executor.devices import has_gpu

    types = {cluster.device(name).type for name in cluster.devices} & device_catalogue().keys()
    gpus = sorted(types - {"cpu-core"})
    if gpus and not has_gpu():
        raise UsageError(
            f'cluster "{cluster.name}" has {", ".join(gpus)}, but this machine has no GPU; measure'
            ' on a node of the cluster, or describe this machine: device = "cpu-core"'
        )


def _print_intent(
    model: ModelSpec,
    cluster: ClusterSpec,
    job: JobSpec,
    sizes: tuple[int, ...],
    options: argparse.Namespace,
) -> None:
    kinds = sorted({layer.config for layer in model.layers})
    if options.json:
        print_json(
            {
                "devices": cluster.devices,
                "layers": kinds,
                "microbatch_sizes": sizes,
                "sequence_length": job.sequence_length,
            }
        )
        return
    print_text(
        f"{len(cluster.devices)} processes would measure {', '.join(kinds)} at microbatch"
        f" sizes {', '.join(map(str, sizes))} of {job.sequence_length} tokens"
    )


def _as_text(profile: Profile) -> str:
    """One line per layer and per link."""
    heading = ("layer", "size", "F", "B", "I", "W", "parameters", "activations", "spread")
    rows = [heading] + [
        (
            cost.layer,
            str(cost.microbatch_size),
            *(
                format_ns(time_ns, digits=3)
                for time_ns in (
                    cost.forward_ns,
                    cost.backward_ns,
                    cost.input_grad_ns,
                    cost.weight_grad_ns,
                )
            ),
            format_bytes(cost.parameter_bytes, digits=3),
            format_bytes(cost.activation_bytes, digits=3),
            f"{cost.spread:.1%}",
        )
        for cost in profile.layers
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines += [
        f"link {link.from_device} -> {link.to_device}: {format_ns(link.latency_ns, digits=3)}, "
        f"{format_bytes_per_s(link.bytes_per_s, digits=3)}"
        for link in profile.links
    ]
    return "\n".join(lines)
