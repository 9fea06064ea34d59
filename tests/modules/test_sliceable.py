"""Which layers are refused where microbatches are cut into slices."""

from typing import Any

import pytest
from torch import Tensor, nn

from evener.errors import UsageError
from evener.modules.reference import build_layers
from evener.modules.sliceable import require_sliceable
from evener.spec.model import ModelSpec

LAYERS: dict[str, dict[str, object]] = {
    "attention": {"kind": "attention", "num_heads": 2, "head_dim": 4, "dropout": 0.1},
    "both_ways": {"kind": "attention", "num_heads": 2, "head_dim": 4, "causal": False},
    "mlp": {"kind": "mlp", "intermediate_size": 5, "dropout": 0.1},
    "mamba": {"kind": "mamba", "num_heads": 2, "head_dim": 3, "state_size": 4},
}


def reference(*kinds: str) -> dict[str, nn.Module]:
    model = ModelSpec.model_validate(
        {
            "name": "tiny",
            "hidden_size": 8,
            "pattern": " ".join(kinds),
            "layer": {kind: LAYERS[kind] for kind in kinds},
        }
    )
    return {f"layers.{index}": layer for index, layer in build_layers(model).items()}


def test_all_that_cannot_be_sliced_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        require_sliceable(reference("attention", "mamba", "mlp", "both_ways"))
    way_out = "plan without slices, or give the layer a forward that takes a slice_context"
    assert str(caught.value) == (
        "the model cannot be computed in slices of tokens\n"
        f"  layers.1: its state runs through all tokens of a sequence; {way_out}\n"
        f"  layers.3: its tokens see later ones; {way_out}"
    )


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


class Trusted(Convolved):
    def forward(self, x: Tensor, slice_context: Any = None) -> Tensor:
        return self.conv(x)


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (
            Convolved(),
            "mine: its Conv1d mixes tokens, and its forward takes no slice_context; plan",
        ),
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), "mine: its BatchNorm1d mixes tokens"),
        (nn.LSTM(4, 4), "mine: its LSTM mixes tokens"),
        (nn.Dropout1d(0.5), "mine: its Dropout1d would draw other random numbers than for the"),
    ],
)
def test_modules_of_torch_that_mix_tokens_are_known(layer: nn.Module, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        require_sliceable({"mine": layer})


def test_layers_that_take_part_or_work_token_by_token_pass() -> None:
    plain = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Dropout(0.5), nn.Dropout1d(0.0))
    require_sliceable({**reference("attention", "mlp"), "trusted": Trusted(), "plain": plain})
