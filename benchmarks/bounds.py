"""What is proven of the step time of 40 published instances: ``python -m benchmarks.bounds``.

The instances are those of ``tests/data/octopipe_baselines.csv``: layer times of five models as
OctoPipe's authors measured them, in ticks of 0.01 ms.  E and L are layers of their own here, so the
bound holds for every plan that may put them anywhere, and for those of OctoPipe, which may not.
Printed are the load, all work over all workers, which is the simple bound; two other proofs, and
the largest of all with its name; the processor time of all of them (ms); OctoPipe's step time and
how far it is above load and bound.
"""

import csv
import time
import tomllib
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

import numpy as np

from evener.planner.bound import BOUNDS, lower_bound
from evener.planner.bounds.instance import ChainTimes, Instance

DATA = Path(__file__).parents[1] / "tests" / "data"


def chain_of(model: str) -> ChainTimes:
    """Layers of a published profile, each time rounded to ticks by itself."""
    text = (DATA / "hybrid_profiles.toml").read_text(encoding="utf-8")
    profile = tomllib.loads(text, parse_float=Decimal)[model]
    ticks = [
        [int((part * 100).quantize(Decimal(1), ROUND_HALF_EVEN)) for part in profile[name]]
        for name in ("E", *profile["pattern"], "L")
    ]
    return ChainTimes.of_parts(*zip(*ticks, strict=True))


def instances() -> Iterator[tuple[dict[str, str], Instance]]:
    """Each row of the table with its instance."""
    with (DATA / "octopipe_baselines.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            message = int(Decimal(row["comm_ms"]) * 100)
            yield (
                row,
                Instance(
                    chain_of(row["model"]),
                    int(row["workers"]),
                    int(row["microbatches"]),
                    message_ns=message,
                ),
            )


def main() -> None:
    print(
        f"{'model':19} {'p':>2} {'m':>2} {'msg':>3} {'load':>7} {'heavy layer':>11} {'fill':>7} "
        f"{'bound':>7} {'proof':11} {'cpu ms':>6} {'OctoPipe':>8} {'/load':>6} {'/bound':>6}"
    )
    above_load, above_bound, cpu_ms = [], [], []
    for row, instance in instances():
        begin_s = time.process_time()
        found, step = lower_bound(instance), int(row["octopipe"])
        cpu_ms.append(1000 * (time.process_time() - begin_s))
        load, heavy, fill = (BOUNDS[name](instance) for name in ("load", "heavy layer", "fill"))
        assert load == int(row["load_bound"])
        above_load.append(step / load - 1)
        above_bound.append(step / found.step_ns - 1)
        print(
            f"{row['model']:19} {row['workers']:>2} {row['microbatches']:>2} "
            f"{instance.message_ns:3} {load:7} {heavy:11} {fill:7} "
            f"{found.step_ns:7} {found.proof:11} {cpu_ms[-1]:6.0f} {step:8} "
            f"{above_load[-1]:6.1%} {above_bound[-1]:6.1%}"
        )
    print(
        f"OctoPipe is above the load by {np.mean(above_load):.2%} on average, "
        f"{max(above_load):.1%} at most; above the bound by {np.mean(above_bound):.2%}, "
        f"{max(above_bound):.1%} at most; {np.mean(cpu_ms):.0f} ms each, {max(cpu_ms):.0f} at most"
    )


if __name__ == "__main__":
    main()
