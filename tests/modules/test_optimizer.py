"""The job's optimizers are torch's."""

import pytest
import torch
from torch import nn

from evener.modules.optimizer import optimizer_factory, set_learning_rate
from evener.spec.job import AdamSpec, SgdSpec


@pytest.mark.parametrize(
    ("spec", "kind", "settings"),
    [
        (
            SgdSpec(learning_rate=0.1, momentum=0.9, weight_decay=0.2),
            torch.optim.SGD,
            {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.2},
        ),
        (
            AdamSpec(kind="adam", learning_rate=0.1, betas=(0.5, 0.6), epsilon=1e-3),
            torch.optim.Adam,
            {"lr": 0.1, "betas": (0.5, 0.6), "eps": 1e-3, "weight_decay": 0.0},
        ),
        (AdamSpec(weight_decay=0.3), torch.optim.AdamW, {"lr": 1e-3, "weight_decay": 0.3}),
    ],
)
def test_a_spec_makes_that_optimizer(spec: object, kind: type, settings: dict[str, object]) -> None:
    optimizer = optimizer_factory(spec)([nn.Parameter(torch.zeros(1))])  # type: ignore[arg-type]
    assert type(optimizer) is kind
    group = optimizer.param_groups[0]
    assert {name: group[name] for name in settings} == settings


def test_the_learning_rate_can_be_changed() -> None:
    optimizer = optimizer_factory(SgdSpec())([nn.Parameter(torch.zeros(1))])
    set_learning_rate(optimizer, 0.5)
    assert optimizer.param_groups[0]["lr"] == 0.5
