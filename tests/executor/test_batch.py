"""Batches are cut into consecutive samples, and what belongs to all goes to all."""

from typing import Any

import pytest
import torch

from evener.errors import UsageError
from evener.executor.batch import cut, num_samples, signature, to_device


def test_samples_are_cut_in_order_the_first_get_one_more() -> None:
    # 8 samples in 3 microbatches: 3, 3, 2.
    parts = cut({"x": torch.arange(8)}, 3)
    assert [part["x"].tolist() for part in parts] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_what_has_no_samples_goes_to_every_microbatch() -> None:
    mask, scale = torch.ones(1, 5), torch.tensor(2.0)
    parts = cut({"x": torch.zeros(4, 5), "mask": mask, "scale": scale, "mode": "a"}, 2)
    for part in parts:
        assert part["x"].shape == (2, 5)
        assert part["mask"] is mask
        assert part["scale"] is scale
        assert part["mode"] == "a"


def test_one_sample_is_a_batch() -> None:
    assert cut({"x": torch.zeros(1, 3)}, 1)[0]["x"].shape == (1, 3)


def test_a_list_is_taken_as_it_is() -> None:
    given = [{"x": torch.zeros(2, 5)}, {"x": torch.zeros(1, 7)}]
    assert cut(given, 2) == given
    assert num_samples(given) == 2
    assert num_samples({"x": torch.zeros(6, 2)}) == 6


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        ([{}], "it is a list of 1 microbatches, but the plan has 3; give 3"),
        ({"x": torch.zeros(2)}, "it has 2 samples for 3 microbatches; give at least one"),
        (
            {"x": torch.zeros(4), "y": torch.zeros(5)},
            "its tensors have different numbers of samples (dimension 0): x 4, y 5",
        ),
        ({"x": torch.zeros(0, 5), "mask": torch.ones(1, 5)}, "it has no samples; give at least"),
        ({"x": 3}, "it has no tensor with samples along dimension 0"),
    ],
)
def test_what_cannot_be_cut_is_refused(batch: Any, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        cut(batch, 3)
    assert str(caught.value).startswith(f"the batch cannot be cut into microbatches\n  {text}")


@pytest.mark.parametrize("batch", [{"x": torch.zeros(0, 5)}, []])
def test_a_batch_without_samples_is_refused(batch: Any) -> None:
    with pytest.raises(UsageError, match="it has no samples; give at least one"):
        num_samples(batch)


def test_the_signature_is_that_of_shapes_and_types() -> None:
    def of(*shape: int, dtype: torch.dtype = torch.float32) -> Any:
        return signature({"x": torch.zeros(shape, dtype=dtype), "mode": "a"})

    assert of(2, 3) == of(2, 3)
    assert len({of(2, 3), of(3, 2), of(2, 3, dtype=torch.int64)}) == 3


def test_to_device_leaves_other_things_alone() -> None:
    moved = to_device({"x": torch.zeros(2), "mode": "a"}, torch.device("meta"))
    assert moved["x"].device.type == "meta"
    assert moved["mode"] == "a"
