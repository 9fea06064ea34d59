"""``evener measure``: time the layers of a model and the links between workers."""

import argparse
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
    whole_numbers,
)
from evener.cli.output import print_json, print_text, progress_bar, write_file
from evener.cost.profile import Profile
from evener.units import format_bytes, format_bytes_per_s, format_ns


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser(
        "measure",
        help="time the layers of a model and the links between workers",
        description="On CPUs it starts one process per device of the cluster by itself; on GPUs"
        " start it with torchrun, one rank per device.",
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
    if options.microbatch_sizes:
        sizes = whole_numbers(options.microbatch_sizes, "--microbatch-sizes")
    if options.dry_run:
        kinds = sorted({layer.config for layer in model.layers})
        print_text(
            f"{len(cluster.devices)} processes would measure {', '.join(kinds)} at microbatch sizes"
            f" {', '.join(map(str, sizes))}"
        )
        return 0
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
    if options.out is not None:
        write_file(options.out, profile.model_dump_json(indent=1) + "\n")
    if options.json:
        print_json(profile.model_dump(mode="json"))
    else:
        print_text(_as_text(profile))
    return 0


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
