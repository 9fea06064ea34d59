"""How long two actions take that run interleaved, so that one computes while the other waits.

Both alternate many times (attention, MLP, attention, ...) between computing a unit and waiting for
the tensor-parallel all-reduce of what it gave.  Computing is one stream, all-reducing another, and
the two actions take turns on both.  Such a pair takes the longest of four things: all computing,
all all-reducing, and either action by itself.  No order of the units does better, and taking turns
reaches it but for the first and last unit, which have nobody beside them: that is one all-reduce of
the many, and hides under what the worker runs next.

Source: arXiv 2510.27257, sec. 3, which counts no all-reduce of a braid either.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Times: TypeAlias = int | NDArray[np.int64]


def braid_ns(
    first_ns: Times, second_ns: Times, first_wait_ns: Times, second_wait_ns: Times
) -> Times:
    """Time of a braid; integers, or arrays of one shape.

    first_ns, second_ns: of each action by itself, its waits included.
    first_wait_ns, second_wait_ns: the part that waits for all-reduces.
    """
    waits_ns = first_wait_ns + second_wait_ns
    compute_ns = first_ns + second_ns - waits_ns
    longer_ns = np.maximum(first_ns, second_ns)
    return np.maximum(np.maximum(compute_ns, waits_ns), longer_ns)
