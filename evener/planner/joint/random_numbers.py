"""Random numbers inside compiled loops, the same for a seed whatever thread runs them."""

import numpy as np

from evener.compiled import uncounted


@uncounted
def next_number(seed: np.ndarray) -> int:
    """63 random bits; SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). seed: uint64[1]."""
    seed[0] += np.uint64(0x9E3779B97F4A7C15)
    z = seed[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int(np.int64((z ^ (z >> np.uint64(31))) >> np.uint64(1)))


@uncounted
def below(seed: np.ndarray, end: int) -> int:
    """A whole number from 0 to ``end`` - 1."""
    return next_number(seed) % end


@uncounted
def unit(seed: np.ndarray) -> float:
    """A number above 0, at most 1."""
    return (next_number(seed) + 1.0) / 2.0**63
