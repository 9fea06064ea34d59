"""Split a backward pass by walking the autograd graph: torch's splitter, wrapped.

The only user of ``torch.distributed.pipelining._backward``, which is private.  It splits any
operation, not only Linears, but keeps more alive between I and W, and it is wrong or fails on some
graphs: those are recognised here and then I does the whole backward and W nothing.
"""

from collections.abc import Iterable, Sequence
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from evener.modules.memory_owner import make_private, without_gradient


def _torch_splitter() -> ModuleType:
    # Imported when first used: it costs seconds, and few stages need it.
    return import_module("torch.distributed.pipelining._backward")


class GraphDeferredGradients:
    """What the splitter keeps for W: nodes of the graph and the gradients that reached them."""

    def __init__(self, parameters: Sequence[nn.Parameter], groups: list[dict]) -> None:
        self._parameters = parameters
        self._groups = groups

    @property
    def num_bytes(self) -> int:
        """Bytes of the gradients kept; what the graph saved for the rest comes besides."""
        storages = {
            gradient.untyped_storage().data_ptr(): gradient.untyped_storage().nbytes()
            for gradient in self._kept()
        }
        return sum(storages.values())

    def _kept(self) -> list[Tensor]:
        return [
            gradient
            for group in self._groups
            for gradients in group["grads"]
            for gradient in gradients
            if gradient is not None
        ]

    def run(self) -> None:
        """Add the gradients to ``.grad`` of the parameters and let the graph go."""
        kept, new = self._kept(), without_gradient(self._parameters)
        groups, self._groups = self._groups, []
        _torch_splitter().stage_backward_weight(iter(self._parameters), groups)
        make_private(new, kept)


class GraphSplit:
    """Splits the backward of ``module`` by its graph."""

    needs_outputs = True

    def __init__(self, module: nn.Module) -> None:
        self._parameters = tuple(p for p in module.parameters() if p.requires_grad)

    def detach(self) -> None:
        """Nothing was attached."""

    def input_backward(
        self,
        roots: Sequence[Tensor] | Sequence[GradientEdge],
        gradients: Sequence[Tensor | None],
        inputs: Sequence[Tensor] = (),
    ) -> GraphDeferredGradients:
        """Run I from ``roots``: adds to ``.grad`` of ``inputs``, the leaves of the stage."""
        tensors = [root for root in roots if isinstance(root, Tensor)]
        assert len(tensors) == len(roots), "this split needs the outputs themselves"
        nodes = [get_gradient_edge(root).node for root in tensors]
        if not can_split(nodes, inputs):
            new = without_gradient(self._parameters)
            torch.autograd.backward(tuple(tensors), tuple(gradients))
            make_private(new, [*gradients, *(x.grad for x in inputs)])
            return GraphDeferredGradients(self._parameters, [])
        # The splitter detaches its outputs in place, which views refuse.
        outputs = [root if root._base is None else root.clone() for root in tensors]
        _, groups = _torch_splitter().stage_backward_input(
            outputs,
            [
                torch.ones_like(o) if g is None else g
                for o, g in zip(outputs, gradients, strict=True)
            ],
            list(inputs),
            iter(self._parameters),
        )
        return GraphDeferredGradients(self._parameters, groups)


def can_split(roots: Iterable[Node], inputs: Sequence[Tensor]) -> bool:
    """Whether torch's splitter is right on this graph.

    It needs an input that requires a gradient below every root (else parameters would be lost),
    parameters that are used once, as is all that is computed from them alone, and no reentrant
    checkpoint (which hides its graph).
    """
    targets = {get_gradient_edge(x).node for x in inputs if x.requires_grad}
    reaches: dict[Node, bool] = {}
    num_uses: dict[Node, int] = {}
    roots = list(roots)
    for node in _children_first(roots):
        if node.name() == "CheckpointFunctionBackward":
            return False
        children = [child for child, _ in node.next_functions if child is not None]
        reaches[node] = node in targets or any(reaches[child] for child in children)
        for child in children:
            if not reaches[child]:
                num_uses[child] = num_uses.get(child, 0) + 1
    return all(reaches[root] for root in roots) and max(num_uses.values(), default=1) <= 1


def _children_first(roots: Iterable[Node]) -> list[Node]:
    """The nodes below ``roots``, every node after all that it feeds on."""
    order: list[Node] = []
    entered: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False) for root in roots]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            order.append(node)
        elif node not in entered:
            entered.add(node)
            stack.append((node, True))
            stack.extend((child, False) for child, _ in node.next_functions if child is not None)
    return order
