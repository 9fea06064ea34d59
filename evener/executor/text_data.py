"""Training batches from a folder of text files, deterministic by (seed, step).

Shapes: B sequences, L positions.  Tokens are pairs of bytes: the most frequent pairs of the text
get an index of their own, all others share index 0, so any vocabulary size works on any text.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from evener.errors import SpecError, Violation

_NUM_PAIRS = 256 * 256


@dataclass(frozen=True)
class TextTokens:
    """All tokens of a text, one after another.

    tokens_N: int64 in [0, vocabulary_size).
    """

    tokens_N: NDArray[np.int64]
    vocabulary_size: int

    def batch(
        self, *, num_sequences: int, sequence_length: int, seed: int, step: int
    ) -> dict[str, torch.Tensor]:
        """``inputs`` and ``targets`` [B, L] (the next token) of one step, random windows.

        The same (seed, step) gives the same batch on every rank and in every run.
        Raises SpecError if the text is shorter than one sequence.
        """
        num_starts = len(self.tokens_N) - sequence_length
        if num_starts < 1:
            raise _too_short(len(self.tokens_N), sequence_length)
        starts_B = np.random.default_rng((seed, step)).integers(num_starts, size=num_sequences)
        windows_BL = self.tokens_N[starts_B[:, None] + np.arange(sequence_length + 1)]
        return {
            "inputs": torch.from_numpy(windows_BL[:, :-1].copy()),
            "targets": torch.from_numpy(windows_BL[:, 1:].copy()),
        }


def read_text(folder: Path, *, vocabulary_size: int, suffix: str = ".py") -> TextTokens:
    """Reads every file below ``folder`` that ends in ``suffix``, in the order of their paths.

    Installed packages (folders named ``site-packages``) are left out.

    Raises SpecError if there is no such file.
    """
    found = (path for path in folder.rglob(f"*{suffix}") if path.is_file())
    files = sorted(path for path in found if "site-packages" not in path.relative_to(folder).parts)
    text = b"\n".join(path.read_bytes() for path in files)
    if not text:
        raise _no_text(folder, suffix)
    pairs_N = np.frombuffer(text[: len(text) // 2 * 2], dtype=np.uint16).astype(np.int64)
    counts = np.bincount(pairs_N, minlength=_NUM_PAIRS)
    frequent = np.argsort(-counts, kind="stable")[: vocabulary_size - 1]
    token_of_pair = np.zeros(_NUM_PAIRS, dtype=np.int64)
    token_of_pair[frequent] = np.arange(1, len(frequent) + 1)
    return TextTokens(token_of_pair[pairs_N], vocabulary_size)


def _too_short(num_tokens: int, sequence_length: int) -> SpecError:
    return SpecError(
        "The text is too short",
        [
            Violation(
                f"it has {num_tokens} tokens (pairs of bytes), one sequence needs"
                f" {sequence_length + 1}; give more text or set job.sequence_length lower"
            )
        ],
    )


def _no_text(folder: Path, suffix: str) -> SpecError:
    return SpecError(
        "No text to train on",
        [
            Violation(
                f"there is no non-empty file ending in {suffix} below {folder};"
                " give a folder that holds some with --data"
            )
        ],
    )
