"""How long two actions take that run interleaved, so that each one computes while the other waits.

Both alternate many times (attention, MLP, attention, ...) between computing and waiting for the
tensor-parallel all-reduce of what was computed.  Computing takes turns on one stream, all-reducing
on another.  Two such jobs of n alternations each take the longest of four things, once n is large:
all computing, all all-reducing, and either action by itself.  No order of the units does better, and
taking turns reaches it: let a period begin with a unit of the first action; the second one follows
when that has ended, and each all-reduces when its unit has ended and the other does not.  What n
leaves out is that a braid begins and ends with one unit alone: the last all-reduce, 1/n of them.
That hides under what runs next.

Source: arXiv 2510.27257, sec. 3, which counts no all-reduce of a braid either.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Times: TypeAlias = int | NDArray[np.int64]


def braid_ns(first_ns: Times, second_ns: Times, first_wait_ns: Times, second_wait_ns: Times) -> Times:
    """Time of a braid; integers, or arrays of one shape.

    first_ns, second_ns: of each action by itself, its waits included.
    first_wait_ns, second_wait_ns: the part that waits for all-reduces.
    """
    waits_ns = first_wait_ns + second_wait_ns
    compute_ns = first_ns + second_ns - waits_ns
    longer_ns = np.maximum(first_ns, second_ns)
    return np.maximum(np.maximum(compute_ns, waits_ns), longer_ns)
