"""An order of devices in which neighbours are well connected, by recursive minimum cuts.

SPP (arXiv 2204.10562), section on recursive device ordering.
"""

import numpy as np

from evener.planner.minimum_cut import Weights, minimum_cut


def device_order(weights: Weights) -> list[int]:
    """Cut the devices in two where the least bandwidth is lost, and order both parts so.

    weights: [device, device], symmetric, larger between devices that are connected better.

    Of the two parts the one with the smallest device comes first.  O(devices^4) at worst.
    """
    return _ordered(weights, list(range(len(weights))))


def _ordered(weights: Weights, devices: list[int]) -> list[int]:
    if len(devices) == 1:
        return devices
    cut = minimum_cut(weights[np.ix_(devices, devices)])
    inside = [devices[index] for index in cut.side]
    outside = [device for device in devices if device not in set(inside)]
    parts = sorted((inside, outside))
    return _ordered(weights, parts[0]) + _ordered(weights, parts[1])
