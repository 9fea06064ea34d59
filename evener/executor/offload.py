"""What OFFLOAD, FREE and RELOAD do: saved activations leave the device and come back.

Source: "SPPO: Efficient Long-sequence LLM Training via Adaptive Sequence Pipeline Parallel
Offloading", arXiv 2503.10377, section 5.
"""

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias

from torch import Tensor

from evener.executor.host_copies import HostCopies
from evener.executor.transport import Handle
from evener.ir.action import Action, Kind
from evener.modules.movable_tensors import MovableTensors, unpack
from evener.modules.stage import Pass
from evener.modules.values import Skeleton

Cell: TypeAlias = Any
"""Whatever the engine calls its cells; the first entry is the stage."""


class Offload:
    """The offloaded cells of one worker.

    num_bytes: per stage, the least that leaves of a cell's activations; None means all of them.
    cell_of: the engine's name for the cell of an action.
    passes, arrived: the engine's, by cell: what a forward left for its backward, and what it has
        put aside to be recomputed.
    on_memory: told of each tensor whose memory is held for a backward from now on.
    kept: what must not be moved with a cell, as others hold it too.
    """

    def __init__(
        self,
        actions: Iterable[Action],
        *,
        copies: HostCopies,
        cell_of: Callable[[Action], Cell],
        passes: Mapping[Cell, Pass],
        arrived: MutableMapping[Cell, tuple[Skeleton, list[Any]]],
        kept: Callable[[Cell], Iterable[Tensor]],
    ) -> None:
        self.num_bytes: Sequence[int] | None = None
        self._copies, self._cell_of = copies, cell_of
        self._passes, self._arrived, self._kept = passes, arrived, kept
        self._cells = {cell_of(action) for action in actions if action.kind is Kind.OFFLOAD}
        self.on_memory: Callable[[Tensor], None] | None = None
        # By cell, from the forward until the way back begins; and what is in host memory.
        self._saved: dict[Cell, MovableTensors] = {}
        self._hosts: dict[Cell, list[Tensor]] = {}

    @property
    def is_idle(self) -> bool:
        return not self._saved and not self._hosts

    def forward(self, run: Callable[[Cell], None]) -> Callable[[Cell], None]:
        """The engine's forward, with a record of what it saves."""

        def recorded(cell: Cell) -> None:
            if cell not in self._cells:
                run(cell)
                return
            saved = MovableTensors(self.on_memory)
            with saved.recording():
                run(cell)
            saved.keep(self._kept(cell))
            if cell in self._passes:
                forward = self._passes[cell]
                saved.keep(root for root in forward.roots if isinstance(root, Tensor))
                saved.inputs = forward.inputs
                self._saved[cell] = saved
            elif cell in self._arrived:
                skeleton, tensors = self._arrived[cell]
                self._arrived[cell] = skeleton, [saved.pack(tensor) for tensor in tensors]
                self._saved[cell] = saved

        return recorded

    def recompute(self, run: Callable[[Cell], None]) -> Callable[[Cell], None]:
        """The engine's R, which finds what has come back."""

        def recorded(cell: Cell) -> None:
            skeleton, tensors = self._arrived[cell]
            self._arrived[cell] = skeleton, list(map(unpack, tensors))
            run(cell)

        return recorded

    def start(self, action: Action) -> Handle:
        """Do an OFFLOAD or RELOAD."""
        cell = self._cell_of(action)
        if action.kind is Kind.OFFLOAD:
            limit = None if self.num_bytes is None else self.num_bytes[action.stage]
            recomputed = cell in self._arrived
            sources = self._saved[cell].leave(None if recomputed else limit)
            self._hosts[cell], handle = self._copies.out(sources)
            return handle
        tensors, handle = self._copies.back(self._hosts.pop(cell))
        if self.on_memory is not None:
            for tensor in tensors:
                self.on_memory(tensor)
        return _ComingBack(handle, self._saved.pop(cell), tensors)

    def free(self, cell: Cell) -> None:
        """Do a FREE."""
        self._saved[cell].let_go()


class _ComingBack:
    def __init__(self, handle: Handle, saved: MovableTensors, tensors: list[Tensor]) -> None:
        self._handle, self._saved, self._tensors = handle, saved, tensors

    def wait(self) -> tuple[Tensor, ...]:
        self._handle.wait()
        self._saved.come_back(self._tensors)
        return ()
