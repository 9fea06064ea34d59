"""The store splits a backward exactly, and holds x and dy between I and W and nothing else."""

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from evener.modules.weight_gradient import WeightGradientStore, deferrable_linears


def double(module: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.double()


class Tied(nn.Module):
    """A Linear called twice whose weight an embedding uses too."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(6, 4)
        self.linear = nn.Linear(4, 6, bias=False)
        self.linear.weight = self.tokens.weight
        self.back = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(torch.tensor([1, 5, 5]))
        return self.linear(self.back(self.linear(x)))


class Transposed(nn.Module):
    """A Linear whose input and output gradient are not contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.transpose(0, 1)).transpose(0, 1)


class Functional(nn.Module):
    """A weight that a Linear and a bare ``functional.linear`` share."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(self.linear(x), self.linear.weight)


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
        self.use_reentrant = use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=self.use_reentrant)


class Subclass(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def frozen(module: nn.Module, *names: str) -> nn.Module:
    for name in names:
        module.get_parameter(name).requires_grad_(False)
    return module


WORLDS = {
    "mlp": lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4)),
    "no bias": lambda: nn.Linear(4, 3, bias=False),
    "tied and called twice": Tied,
    "not contiguous": Transposed,
    "shared with a function": Functional,
    "checkpoint": lambda: Checkpointed(use_reentrant=False),
    "reentrant checkpoint": lambda: Checkpointed(use_reentrant=True),
    "subclass": lambda: nn.Sequential(Subclass(4, 4), nn.Linear(4, 4)),
    "frozen weight": lambda: frozen(nn.Linear(4, 4), "weight"),
    "frozen bias": lambda: frozen(nn.Linear(4, 4), "bias"),
    "frozen": lambda: frozen(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), "0.weight", "0.bias"),
}


def run(module: nn.Module, x: Tensor, store: WeightGradientStore | None) -> list[Tensor | None]:
    """Two backward passes, so that gradients are also added to; all gradients, the input's last."""
    for scale in (1.0, -0.5):
        y = module(x)
        gradient = scale * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
        if store is None:
            y.backward(gradient)
        else:
            store.input_backward([y], [gradient], [x]).run()
    return [parameter.grad for parameter in module.parameters()] + [x.grad]


def assert_equal(ours: list[Tensor | None], whole: list[Tensor | None], tolerance: float) -> None:
    assert [g is None for g in ours] == [g is None for g in whole]
    for our, their in zip(ours, whole, strict=True):
        if our is not None and their is not None:
            assert our.dtype == their.dtype
            assert (our - their).abs().max() <= tolerance


# Torch itself gives no gradient at all in two of the worlds if the input needs none.
CASES = [(world, True) for world in WORLDS] + [
    (world, False) for world in WORLDS if world not in ("frozen", "reentrant checkpoint")
]


@pytest.mark.parametrize(("world", "needs_x"), CASES)
def test_equals_the_whole_backward(world: str, needs_x: bool) -> None:
    x_shape = (3, 4) if world != "not contiguous" else (3, 5, 3)
    expected_module = double(WORLDS[world]())
    split_module = double(WORLDS[world]())
    values = torch.linspace(-1, 1, torch.Size(x_shape).numel(), dtype=torch.float64).view(x_shape)
    expected = run(expected_module, values.clone().requires_grad_(needs_x), None)
    store = WeightGradientStore(split_module)
    assert_equal(run(split_module, values.clone().requires_grad_(needs_x), store), expected, 1e-12)


def test_a_backward_outside_of_a_split_is_whole() -> None:
    module = double(nn.Linear(4, 3))
    WeightGradientStore(module)
    x = torch.ones(2, 4, dtype=torch.float64)
    module(x).sum().backward()
    # d(sum)/d(weight[o, i]) = sum over rows of x = 2, d(sum)/d(bias) = number of rows = 2.
    assert torch.equal(module.weight.grad, torch.full((3, 4), 2.0, dtype=torch.float64))
    assert torch.equal(module.bias.grad, torch.full((3,), 2.0, dtype=torch.float64))


def test_weight_gradients_come_in_w_and_the_others_in_i() -> None:
    module = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4))
    store = WeightGradientStore(module)
    deferred = store.input_backward([module(torch.randn(2, 4)).sum()], [None])
    assert module[0].weight.grad is not None
    assert module[1].weight.grad is None
    assert module[1].bias.grad is None
    deferred.run()
    assert module[1].weight.grad is not None
    assert module[1].bias.grad is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_gives_the_types_and_numbers_of_torch(dtype: torch.dtype) -> None:
    def gradients(split: bool) -> list[Tensor | None]:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        store = WeightGradientStore(module) if split else None
        x = torch.randn(5, 8).requires_grad_()
        with torch.autocast("cpu", dtype):
            return run(module, x, store)

    # Gradients are of order 1 here; bfloat16 resolves 2^-8, sums of 5 rows a few of these.
    assert_equal(gradients(split=True), gradients(split=False), 0.05)


def test_autocast_leaves_doubles_alone() -> None:
    module = nn.Linear(4, 4).double()
    WeightGradientStore(module)
    with torch.autocast("cpu", torch.bfloat16):
        assert module(torch.ones(1, 4, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.usefixtures("quick_gc")
def test_only_x_and_dy_live_between_i_and_w_and_nothing_after() -> None:
    module = nn.Sequential(nn.Linear(4, 64), nn.GELU(), nn.Linear(64, 4))
    store = WeightGradientStore(module)
    alive: list[weakref.ref[Tensor]] = []

    def watch(*_: object) -> None:
        alive.append(weakref.ref(_[-1]))

    module[1].register_forward_hook(watch)  # the GELU's output is the x of the second Linear
    x = torch.randn(8, 4).requires_grad_()
    y = module(x)
    edge = get_gradient_edge(y)
    output = weakref.ref(y)
    before_gelu = weakref.ref(module[0](x).grad_fn)
    del y
    assert output() is None, "an edge does not keep the output"
    deferred = store.input_backward([edge], [torch.ones(8, 4)], [x])
    del edge
    assert before_gelu() is None
    # x 8*4, dy of the hidden 8*64, hidden 8*64, dy of the output 8*4; 4 bytes each.
    assert deferred.num_bytes == 4 * (32 + 512 + 512 + 32)
    deferred.run()
    assert deferred.num_bytes == 0
    gc.collect()
    assert [reference() for reference in alive] == [None]


def live_storages() -> int:
    gc.collect()
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


@pytest.mark.usefixtures("quick_gc")
def test_many_splits_leave_nothing_behind() -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    store = WeightGradientStore(module)

    def step() -> None:
        store.input_backward([module(torch.randn(2, 4)).sum()], [None]).run()

    step()
    before = live_storages()
    for _ in range(3):
        step()
    assert live_storages() == before


def test_what_waits_for_w_must_not_change() -> None:
    module = nn.Linear(4, 4)
    store = WeightGradientStore(module)
    x = torch.randn(2, 4)
    deferred = store.input_backward([module(x).sum()], [None])
    x.zero_()
    with pytest.raises(RuntimeError, match="changed in place between the I and the W"):
        deferred.run()


def test_a_gradient_through_a_linear_is_not_differentiated_under_autocast() -> None:
    module = nn.Linear(4, 4)
    WeightGradientStore(module)
    x = torch.randn(2, 4).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = module(x).sum()
    with pytest.raises(RuntimeError, match="create_graph=True"):
        torch.autograd.grad(y, x, create_graph=True)


def test_a_new_gradient_shares_no_memory_with_what_is_kept() -> None:
    module = nn.Linear(4, 4)
    shift = nn.Parameter(torch.zeros(2, 4))
    module.register_parameter("shift", shift)
    store = WeightGradientStore(module)
    received = torch.ones(1, 2, 4)
    y = module(torch.randn(1, 2, 4)) + shift[None]
    deferred = store.input_backward([y], [received])
    assert shift.grad is not None
    shift.grad.mul_(5)
    deferred.run()
    # The gradient of the bias sums the two rows of ones.
    assert torch.equal(module.bias.grad, torch.full((4,), 2.0))
    assert torch.equal(received, torch.ones(1, 2, 4))


def test_an_error_in_the_backward_ends_the_deferring() -> None:
    module = nn.Linear(4, 4)
    store = WeightGradientStore(module)
    y = module(torch.randn(2, 4))
    with pytest.raises(RuntimeError, match="shape"):
        store.input_backward([y], [torch.ones(3)])
    assert not store.is_deferring


def test_a_weight_with_a_hook_is_done_in_i() -> None:
    module = nn.Linear(4, 4)
    seen: list[Tensor] = []
    module.weight.register_hook(seen.append)
    store = WeightGradientStore(module)
    deferred = store.input_backward([module(torch.randn(2, 4)).sum()], [None])
    assert len(seen) == 1
    assert deferred.num_bytes == 0


def test_a_compiled_module_is_done_in_i() -> None:
    # torch.compile hides the module inside of another one under this name.
    compiled = nn.Module()
    compiled.add_module("_orig_mod", nn.Linear(4, 4))
    outside = nn.Linear(4, 4)
    assert list(deferrable_linears(nn.ModuleList([compiled, outside]))) == [outside]


def test_detach_gives_the_module_back() -> None:
    module = nn.Linear(4, 4)
    store = WeightGradientStore(module)
    assert "forward" in vars(module)
    store.detach()
    assert "forward" not in vars(module)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
