"""The device that a rank computes on."""

import torch

from evener.executor.launch import Rank


def device_of(rank: Rank) -> torch.device:
    """The GPU with the rank's number on its machine, or the CPU where there is none."""
    if torch.cuda.is_available():
        return torch.device("cuda", rank.local_index)
    return torch.device("cpu")
