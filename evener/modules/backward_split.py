"""How a stage splits its backward into I and W, and the choice between the ways.

``store``  Linears keep x and dy for W, everything else is done in I.  Right for every module, holds
           exactly x and dy between I and W.  The default.
``graph``  torch's graph walk.  Also defers convolutions, norms and embeddings, but costs up to
           9 % more time and keeps most activations until W.  Chosen where Linears hold less than
           half of a stage's trainable parameters, embeddings aside (their gradient is cheap); on
           graphs that it cannot split, I does everything.
"""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from evener.modules.graph_split import GraphSplit
from evener.modules.weight_gradient import WeightGradientStore, deferrable_linears

Way = Literal["store", "graph"]
Roots: TypeAlias = Sequence[Tensor] | Sequence[GradientEdge]


class Deferred(Protocol):
    """What an I leaves to its W.

    num_bytes: of the tensors that it keeps; the autograd graph may keep more.
    """

    @property
    def num_bytes(self) -> int: ...

    def run(self) -> None:
        """Do the W: add to ``.grad`` of the parameters, free what was kept."""


class BackwardSplit(Protocol):
    """Splits the backward of one stage.

    needs_outputs: whether roots must be tensors; otherwise gradient edges will do, so that the
        output itself can be freed once it is sent.
    """

    needs_outputs: bool

    def input_backward(
        self,
        roots: Roots,
        gradients: Sequence[Tensor | None],
        inputs: Sequence[Tensor] = (),
    ) -> Deferred:
        """Do the I from ``roots`` with their ``gradients`` (None for a scalar loss).

        Adds to ``.grad`` of ``inputs`` (leaves that require a gradient) and returns the rest.
        """
        ...

    def detach(self) -> None:
        """Leave the modules as they were found."""


def way_of(module: nn.Module) -> Way:
    """The way that suits a stage: by where its trainable parameters are (see the file's text)."""
    deferrable = {id(linear.weight) for linear in deferrable_linears(module)}
    embeddings = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    in_linears = elsewhere = 0
    for parameter in module.parameters():
        if not parameter.requires_grad:
            continue
        if id(parameter) in deferrable:
            in_linears += parameter.numel()
        elif id(parameter) not in embeddings:
            elsewhere += parameter.numel()
    return "store" if in_linears >= elsewhere else "graph"


def split_backward(module: nn.Module, way: Way | None = None) -> BackwardSplit:
    """A split for the layers of one stage; ``way`` overrides the choice of ``way_of``."""
    if (way or way_of(module)) == "store":
        return WeightGradientStore(module)
    return GraphSplit(module)
