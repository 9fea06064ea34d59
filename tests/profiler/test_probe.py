"""A probe does what the executor does, and counts to the byte."""

import pytest
import torch
from torch import Tensor, nn

from evener.modules.keyed_rng import KeyedGenerators
from evener.modules.loss import TokenLoss
from evener.modules.stage import Draw
from evener.modules.values import Microbatch, Value
from evener.profiler.probe import Arrival, Probe, Subject

CPU = torch.device("cpu")
X_BTD = torch.ones(2, 4, 8)


def probe(subject: Subject, value: Value = X_BTD, microbatch: Microbatch | None = None) -> Probe:
    arrival = Arrival(value, microbatch or {}, num_sequences=2, scale=0.5)
    return Probe(subject, arrival, device=CPU, draw=Draw(0, 0, KeyedGenerators(CPU)))


def test_bytes_of_a_linear() -> None:
    assert probe(Subject("linear", 1, nn.Linear(8, 16))).sizes == {
        "input_bytes": 2 * 4 * 8 * 4,
        "output_bytes": 2 * 4 * 16 * 4,
        "activation_bytes": 2 * 4 * 8 * 4,
        # Input and gradient of the output.
        "weight_gradient_bytes": 2 * 4 * 8 * 4 + 2 * 4 * 16 * 4,
    }


def test_bytes_of_a_head_with_its_loss() -> None:
    head = Subject("head", 1, nn.Linear(8, 5, bias=False), loss=TokenLoss())
    sizes = probe(head, microbatch={"targets": torch.zeros(2, 4, dtype=torch.int64)}).sizes
    # Beside its input, 8 logarithms of 5 probabilities, 8 targets of 8 bytes, and the total weight
    # of the targets, one number.
    assert sizes["activation_bytes"] == 256 + 8 * 5 * 4 + 8 * 8 + 4
    assert sizes["output_bytes"] == 8 * 5 * 4


def test_an_embedding_leaves_nothing_to_w() -> None:
    tokens = torch.zeros(2, 4, dtype=torch.int64)
    sizes = probe(Subject("embedding", 0, nn.Embedding(3, 8)), tokens).sizes
    assert sizes["input_bytes"] == sizes["activation_bytes"] == 8 * 8
    assert sizes["weight_gradient_bytes"] == 0


def test_a_split_by_the_graph_counts_what_the_graph_keeps() -> None:
    x_BCL = torch.ones(2, 3, 10)
    convolution = Subject("conv", 1, nn.Conv1d(3, 4, 3, padding=1, bias=False))
    # Input 2 x 3 x 10, gradient of the output 2 x 4 x 10.
    assert probe(convolution, x_BCL).sizes["weight_gradient_bytes"] == 240 + 320


class Gated(nn.Module):
    """Takes a pair, and a scale from the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, pair: tuple[Tensor, Tensor], factor: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(pair[0]) * pair[1], pair[1] * factor


def test_nested_values_and_entries_of_the_batch() -> None:
    factor = torch.full((2, 4, 8), 3.0)
    sizes = probe(Subject("gated", 1, Gated()), (X_BTD, X_BTD), {"factor": factor}).sizes
    assert sizes["input_bytes"] == sizes["output_bytes"] == 2 * 256


@pytest.mark.parametrize("way", ["store", "graph"])
def test_i_and_w_make_the_gradients_of_b(way: str) -> None:
    module = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    made = probe(Subject("mlp", 1, module, way=way))  # type: ignore[arg-type]
    module.zero_grad()
    made.backward(made.forward(split=False))
    whole = [parameter.grad for parameter in module.parameters()]
    module.zero_grad()
    made.weight_backward(made.input_backward(made.forward(split=True)))
    for expected, parameter in zip(whole, module.parameters(), strict=True):
        assert expected is not None
        assert torch.allclose(parameter.grad, expected, atol=1e-6)


def test_a_layer_that_learns_nothing_has_no_w() -> None:
    made = probe(Subject("frozen", 0, nn.Linear(8, 8).requires_grad_(False)))
    assert made.input_backward(made.forward(split=True)) is None
    assert made.sizes["weight_gradient_bytes"] == made.sizes["activation_bytes"] == 0
