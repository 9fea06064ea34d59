"""Split a backward pass by keeping what the weight gradients of Linears need for later.

A Linear's gradients are two products: the input's (on the critical path of a pipeline) and the
weight's (needed by nobody before the optimizer).  ``WeightGradientStore`` makes the backward of
every exact ``nn.Linear`` of a module do the first only, and keep ``x`` and ``dy``; the second is
done when the schedule says W.  All other parameters get their gradient in I, so I is complete for
every module, W holds exactly ``x`` and ``dy``, and nothing else of the graph stays alive.

Source of the split: Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024), section 2.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge
from torch.nn import functional

from evener.modules.memory_owner import alias, make_private, without_gradient


class _Product:
    """What one call of a Linear owes: gradients ``dy.T @ x`` (weight) and ``sum(dy)`` (bias)."""

    __slots__ = ("bias", "dy", "versions", "weight", "x")

    def __init__(self, x: Tensor, dy: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
        self.x = x
        self.dy = dy
        self.weight = weight
        self.bias = bias
        self.versions = (x._version, dy._version)

    def add_to_gradients(self) -> None:
        if (self.x._version, self.dy._version) != self.versions:
            raise RuntimeError(_CHANGED)
        dy_NO = self.dy.reshape(-1, self.dy.shape[-1])
        if self.weight is not None:
            _add_product(self.weight, dy_NO, self.x.reshape(-1, self.x.shape[-1]))
        if self.bias is not None:
            gradient = dy_NO.sum(0).to(self.bias.dtype)
            self.bias.grad = gradient if self.bias.grad is None else self.bias.grad.add_(gradient)


def _add_product(weight: Tensor, dy_NO: Tensor, x_NI: Tensor) -> None:
    if weight.grad is None:
        weight.grad = (dy_NO.t() @ x_NI).to(weight.dtype)
    elif weight.grad.dtype == dy_NO.dtype:
        weight.grad.addmm_(dy_NO.t(), x_NI)
    else:
        weight.grad.add_(dy_NO.t() @ x_NI)


class DeferredGradients:
    """The weight gradients that an I left to its W."""

    def __init__(self, products: list[_Product]) -> None:
        self._products = products

    @property
    def num_bytes(self) -> int:
        """Bytes of the distinct storages that are kept alive until W."""
        storages = {
            tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
            for product in self._products
            for tensor in (product.x, product.dy)
        }
        return sum(storages.values())

    @torch.no_grad()
    def run(self) -> None:
        """Add the gradients to ``.grad`` of the parameters; each ``x`` and ``dy`` is let go."""
        while self._products:
            self._products.pop().add_to_gradients()


class _DeferrableLinear(torch.autograd.Function):
    """``functional.linear`` whose backward leaves the weight to the store when told to."""

    @staticmethod
    def forward(ctx, x, weight, bias, store):
        compute_dtype = _autocast_dtype(x)
        ctx.x_dtype, ctx.store = x.dtype, store
        ctx.is_cast = compute_dtype is not None
        # Under a checkpoint the saved tensors come back as copies; gradients go to these two.
        ctx.weight, ctx.bias = weight, bias
        if compute_dtype is None:
            ctx.save_for_backward(x, weight)
            return _not_a_view(functional.linear(x, weight, bias))
        # The casts are explicit because autocast would cache them without a gradient.
        x = x.to(compute_dtype)
        ctx.save_for_backward(x, weight)
        cast_bias = None if bias is None else bias.to(compute_dtype)
        return _not_a_view(functional.linear(x, weight.to(compute_dtype), cast_bias))

    @staticmethod
    def backward(ctx, dy):
        makes_graph = torch.is_grad_enabled()
        if makes_graph and ctx.is_cast:
            raise RuntimeError(_CAST_TWICE)
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        dx = None
        if needs_x:
            dx = (dy @ weight.to(dy.dtype)).to(ctx.x_dtype)
        if not (needs_weight or needs_bias):
            return dx, None, None, None
        if ctx.store.is_deferring and not makes_graph:
            owed_weight = ctx.weight if needs_weight else None
            owed_bias = ctx.bias if needs_bias else None
            ctx.store.owe(x if needs_x else ctx.store.lasting(x), dy, owed_weight, owed_bias)
            return dx, None, None, None
        dy_NO = dy.reshape(-1, dy.shape[-1])
        dweight = dbias = None
        if needs_weight:
            dweight = (dy_NO.t() @ x.reshape(-1, x.shape[-1])).to(weight.dtype)
        if needs_bias:
            dbias = dy_NO.sum(0).to(ctx.bias.dtype)
        return dx, dweight, dbias, None


def _not_a_view(y: Tensor) -> Tensor:
    """``y`` for the layers after it to change in place, which autograd forbids for a view."""
    return alias(y) if y._is_view() else y


def _autocast_dtype(x: Tensor) -> torch.dtype | None:
    """What autocast would compute in, None if it would leave the types alone."""
    device_type = x.device.type
    if not torch.is_autocast_enabled(device_type) or x.dtype == torch.float64:
        return None
    return torch.get_autocast_dtype(device_type)


class WeightGradientStore:
    """Attaches to the Linears of a module and splits its backward.

    module: the layers of one stage.  Its Linears keep their class, names and hooks; only their
        ``forward`` is replaced, until ``detach``.  Subclasses of ``nn.Linear``, compiled modules,
        complex weights and weights with gradient hooks are left alone: their gradients are
        complete after I.

    ``is_deferring`` and ``products`` are plain attributes, not thread-local: autograd runs the
    backward of a GPU on a thread of its own, and one store belongs to one stage of one process.
    """

    needs_outputs = False

    def __init__(self, module: nn.Module) -> None:
        self.is_deferring = False
        self.products: list[_Product] = []
        self._linears = tuple(deferrable_linears(module))
        self._parameters = tuple(module.parameters())
        self._module = module
        for linear in self._linears:
            linear.forward = _Forward(linear, self)  # type: ignore[method-assign]

    def owe(self, x: Tensor, dy: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
        """Keep a product for W."""
        self.products.append(_Product(x, dy, weight, bias))

    def lasting(self, x: Tensor) -> Tensor:
        """``x``, or a copy if it is a buffer of the module, which later forwards may change."""
        memory = x.untyped_storage().data_ptr()
        buffers = self._module.buffers()
        if any(buffer.untyped_storage().data_ptr() == memory for buffer in buffers):
            return x.clone()
        return x

    def detach(self) -> None:
        """Give the Linears their own ``forward`` back."""
        for linear in self._linears:
            del linear.forward

    @contextmanager
    def _deferring(self) -> Iterator[None]:
        self.is_deferring = True
        try:
            yield
        finally:
            self.is_deferring = False

    def input_backward(
        self,
        roots: Sequence[Tensor] | Sequence[GradientEdge],
        gradients: Sequence[Tensor | None],
        inputs: Sequence[Tensor] = (),
    ) -> DeferredGradients:
        """Run I from ``roots``: adds to ``.grad`` of the inputs and of all but Linear parameters.

        inputs: leaves that require a gradient.
        """
        new = without_gradient(self._parameters)
        with self._deferring():
            torch.autograd.backward(list(roots), list(gradients))  # type: ignore[arg-type]
        products, self.products = self.products, []
        kept = [tensor for product in products for tensor in (product.x, product.dy)]
        make_private(new, [*gradients, *(x.grad for x in inputs), *kept])
        return DeferredGradients(products)


class _Forward:
    """The replaced ``forward`` of one Linear (a class so that the module can still be copied)."""

    def __init__(self, linear: nn.Linear, store: WeightGradientStore) -> None:
        self._linear = linear
        self._store = store

    def __call__(self, input: Tensor) -> Tensor:  # noqa: A002 - the name that nn.Linear uses
        weight, bias = self._linear.weight, self._linear.bias
        if not weight.is_leaf or _has_hooks(weight) or not torch.is_grad_enabled():
            return functional.linear(input, weight, bias)
        return _DeferrableLinear.apply(input, weight, bias, self._store)


def _has_hooks(parameter: Tensor) -> bool:
    return bool(parameter._backward_hooks or parameter._post_accumulate_grad_hooks)


def deferrable_linears(module: nn.Module) -> Iterator[nn.Linear]:
    """Every exact real ``nn.Linear`` in ``module`` once, but for those in compiled modules."""
    seen: set[int] = set()
    pending = [module]
    while pending:
        current = pending.pop()
        if id(current) in seen or _is_compiled(current):
            continue
        seen.add(id(current))
        if type(current) is nn.Linear and not current.weight.is_complex():
            yield current
        pending.extend(current.children())


def _is_compiled(module: nn.Module) -> bool:
    return "_orig_mod" in module._modules or module._compiled_call_impl is not None


_CHANGED = (
    "the input or the output gradient of a Linear was changed in place between the I and the W of "
    "a microbatch, but its weight gradient is only made in W; do not change it in place, or plan "
    "with a schedule that does not split the backward"
)

_CAST_TWICE = (
    "a gradient through a Linear is to be differentiated again (create_graph=True) under autocast, "
    "which a split backward does not do; train in the type of the parameters, or plan with a "
    "schedule that does not split the backward"
)
