"""What a forward changes in the buffers of its modules, such as the statistics of a BatchNorm."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Changed = Sequence[tuple[nn.Module, str, Tensor | None]]
"""(module, name of the buffer, what it was before)."""


class BufferWatch:
    """Copies the buffers of ``module`` when made, and then tells which have changed since."""

    def __init__(self, module: nn.Module) -> None:
        self._before = [
            (part, name, buffer, _copy(buffer))
            for part in module.modules()
            for name, buffer in part._buffers.items()
        ]

    def changed(self) -> Changed:
        """Those that were written to or replaced, with copies of what they were."""
        return [
            (part, name, copy)
            for part, name, buffer, copy in self._before
            if part._buffers.get(name) is not buffer or _differ(buffer, copy)
        ]


@contextmanager
def replayed(changed: Changed) -> Iterator[None]:
    """Run a forward again from the buffers it had, and leave the present ones as they are.

    The copies are put in place of the buffers, not written into them: graphs may have saved those.
    """
    present = [(part, name, part._buffers.get(name)) for part, name, _ in changed]
    put(changed)
    try:
        yield
    finally:
        put(present)


def put(buffers: Changed) -> None:
    """Have the modules use these as their buffers."""
    for part, name, buffer in buffers:
        part._buffers[name] = buffer


def _copy(buffer: Tensor | None) -> Tensor | None:
    return None if buffer is None else buffer.detach().clone()


def _differ(buffer: Tensor | None, copy: Tensor | None) -> bool:
    # By value: torch's batch norms write to their statistics without counting that as a change.
    return buffer is not None and copy is not None and not torch.equal(buffer, copy)
