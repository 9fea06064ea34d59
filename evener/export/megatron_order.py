"""The two orders of work that Megatron-LM has: 1F1B, and interleaved 1F1B.

Written from ``get_pp_rank_microbatches`` and ``get_schedule_table`` in
``megatron/core/pipeline_parallel/schedules.py`` (core 0.16): rank r of p runs all chunks of a
group of microbatches before the next group; 2(p-1-r) + (v-1)g forwards come first (p-1-r without
chunks), then forward and backward in turn.
"""

from collections.abc import Iterator

from evener.ir.action import Action, Kind
from evener.ir.schedule import Schedule


def megatron_order(
    num_ranks: int, num_microbatches: int, *, num_chunks: int = 1, group_size: int | None = None
) -> Schedule:
    """The schedule that Megatron-LM runs.

    num_chunks: model chunks per rank (virtual pipeline size); chunk c of rank r is stage c p + r.
    group_size: ``--microbatch-group-size-per-virtual-pipeline-stage``; None is its default, the
        number of ranks. Of no meaning without chunks.
    """
    groups = _groups(num_microbatches, group_size or num_ranks)
    workers = []
    for rank in range(num_ranks):
        stages = range(rank, num_chunks * num_ranks, num_ranks)
        forward = [Action(s, Kind.F, m) for g in groups for s in stages for m in g]
        backward = [Action(s, Kind.B, m) for g in groups for s in stages[::-1] for m in g]
        warm_up = num_ranks - 1 - rank
        if num_chunks > 1:
            warm_up = 2 * warm_up + (num_chunks - 1) * (group_size or num_ranks)
        workers.append(tuple(_in_turn(forward, backward, min(warm_up, len(forward)))))
    name = "one_f_one_b" if num_chunks == 1 else "interleaved_one_f_one_b"
    return Schedule(name, num_chunks * num_ranks, num_microbatches, tuple(workers))


def group_sizes(num_ranks: int, num_microbatches: int) -> list[int]:
    """The group sizes that Megatron-LM accepts: no group is smaller than the number of ranks."""
    return [
        size
        for size in range(num_ranks, num_microbatches + 1)
        if num_microbatches % size == 0 or num_microbatches % size >= num_ranks
    ]


def _groups(num_microbatches: int, size: int) -> list[range]:
    starts = range(0, num_microbatches, size)
    return [range(start, min(start + size, num_microbatches)) for start in starts]


def _in_turn(forward: list[Action], backward: list[Action], warm_up: int) -> Iterator[Action]:
    yield from forward[:warm_up]
    for f, b in zip(forward[warm_up:], backward, strict=False):
        yield f
        yield b
    yield from backward[len(forward) - warm_up :]
