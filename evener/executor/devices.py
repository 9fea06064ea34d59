"""The device that a rank computes on."""

import torch

from evener.executor.launch import Rank


def has_gpu() -> bool:
    """Whether this machine has a GPU that torch can use."""
    return torch.cuda.is_available()


def device_of(rank: Rank) -> torch.device:
    """The GPU with the rank's number on its machine, or the CPU where there is none."""
    if has_gpu():
        return torch.device("cuda", rank.local_index)
    return torch.device("cpu")
