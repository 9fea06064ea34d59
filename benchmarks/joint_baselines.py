"""What others make of the forty problems: ``python -m benchmarks.joint_baselines``.

For each row of ``tests/data/octopipe_baselines.csv``, step times in ticks of 0.01 ms in our
simulator:

- 1F1B, interleaved 1F1B with two and with four chunks, ZB-H1 and ZB-V, with uniform stages (equal
  numbers of layers, of which the embedding and the head are none) and with the most even ones;
- AdaPtis' search as published (``evener plan --planner adaptis``), with its CPU seconds, and the
  step time of OctoPipe's tuner in its authors' simulator over it.

Rows are numbered from 0: ``--rows 0-9,20``.
"""

import argparse
import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.octopipe_rows import TICK_NS, chosen, problem_of, rows
from evener.planner.adaptis.plan_adaptis import plan_adaptis
from evener.planner.candidate import Candidate, Shape
from evener.planner.partition.contiguous import Partition, uniform_partition
from evener.planner.problem import Problem
from evener.planner.result import PlanResult
from evener.planner.stop import NeverStop
from evener.planner.sweep import balanced
from evener.schedules import SCHEDULES, ScheduleShape

FIXED = {
    "1F1B": ("one_f_one_b", 1),
    "inter 2": ("interleaved_one_f_one_b", 2),
    "inter 4": ("interleaved_one_f_one_b", 4),
    "ZB-H1": ("zb_h1", 1),
    "ZB-V": ("zb_v", 2),
}
"""Schedule and stages per worker of each column."""


@dataclass(frozen=True)
class Fixed:
    """Step times of one schedule in ticks.

    uniform: with equal numbers of layers. even: with the partition whose longest stage is shortest.
    """

    uniform: int
    even: int


COLUMNS = "   1F1B  inter  ZB-H1   ZB-V   even adaptis cpu s"
"""Head of what ``Baselines`` prints in a row."""


@dataclass(frozen=True)
class Baselines:
    """fixed: by column. adaptis: the plan of AdaPtis' search. adaptis_s: its CPU time."""

    fixed: dict[str, Fixed]
    adaptis: PlanResult
    adaptis_s: float

    @property
    def adaptis_ticks(self) -> int:
        return ticks(self.adaptis.objective_ns)

    @property
    def interleaved(self) -> Fixed:
        """The better of two and four chunks, with either partition."""
        both = self.fixed["inter 2"], self.fixed["inter 4"]
        return Fixed(min(each.uniform for each in both), min(each.even for each in both))

    def __str__(self) -> str:
        """With uniform stages; then the best of all with the most even ones, and AdaPtis."""
        of_one = [self.fixed[name] for name in ("1F1B", "ZB-H1", "ZB-V")]
        of_one.insert(1, self.interleaved)
        even = min(each.even for each in self.fixed.values())
        uniform = "".join(f"{each.uniform:7}" for each in of_one)
        return f"{uniform}{even:7}{self.adaptis_ticks:8}{self.adaptis_s:6.1f}"


def baselines(problem: Problem) -> Baselines:
    """Of a problem of one pipeline, whose first layer is the embedding and whose last the head."""
    begin_s = time.process_time()
    found = plan_adaptis(problem, stop=NeverStop(), seed=0, progress=lambda *_: None)
    used_s = time.process_time() - begin_s
    return Baselines({name: fixed(problem, *of) for name, of in FIXED.items()}, found, used_s)


def fixed(problem: Problem, schedule: str, chunks: int) -> Fixed:
    """Both step times of a registered schedule."""
    sizes = ScheduleShape(len(problem.cluster.devices), problem.job.num_sequences, chunks)
    candidate = Candidate(problem, Shape(SCHEDULES[schedule], sizes, 1, 1))
    even = balanced(candidate, with_caps=False)
    assert even is not None, "every row has more layers than stages"
    partitions = uniform_stages(problem, sizes.num_stages), even
    return Fixed(*(ticks(candidate.evaluate(each).step_ns) for each in partitions))


def uniform_stages(problem: Problem, num_stages: int) -> Partition:
    """Equal numbers of the layers between embedding and head, which go with the first and last."""
    inner = uniform_partition(problem.num_layers - 2, num_stages)
    return tuple(pairwise([0, *(end + 1 for _, end in inner[:-1]), problem.num_layers]))


def ticks(time_ns: int) -> int:
    return round(time_ns / TICK_NS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="0-39")
    options = parser.parse_args()
    print("uniform stages / most even ones, in ticks of 0.01 ms")
    columns = "".join(f"{name:>14}" for name in FIXED)
    print(f"row model                 p  m  ms {columns}  adaptis cpu s octopipe  ratio")
    table = list(rows())
    ratios, gains = [], []
    for number in chosen(options.rows, len(table)):
        row = table[number]
        found = baselines(problem_of(row))
        steps = "".join(f"{f'{each.uniform}/{each.even}':>14}" for each in found.fixed.values())
        ratios.append(row.octopipe / found.adaptis_ticks)
        gains.append(found.interleaved.uniform / found.adaptis_ticks)
        print(
            f"{number:3} {row.model:20} {row.workers:2} {row.microbatches:2} {row.comm_ms:3}{steps}"
            f" {found.adaptis_ticks:8} {found.adaptis_s:5.1f} {row.octopipe:8} {ratios[-1]:6.3f}",
            flush=True,
        )
    print(
        f"OctoPipe's step over that of its search here: mean {np.mean(ratios):.3f}, "
        f"{min(ratios):.3f} to {max(ratios):.3f}; interleaved 1F1B with uniform stages over it: "
        f"mean {np.mean(gains):.3f}, up to {max(gains):.3f}"
    )


if __name__ == "__main__":
    main()
