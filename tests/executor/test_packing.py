"""Tensors become buffers of bytes and come back."""

import pytest
import torch

from evener.executor.packing import PACKED_BYTES, Layout


def shapes(*sizes: int) -> tuple[tuple[torch.dtype, torch.Size], ...]:
    return tuple((torch.uint8, torch.Size((size,))) for size in sizes)


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ((), ()),
        ((0,), ()),
        ((1, 0, 2), ((0, 2),)),
        ((PACKED_BYTES, 1), ((0,), (1,))),  # full, then a new one
        ((PACKED_BYTES - 16, 1, 1), ((0, 1), (2,))),  # 1 byte takes 16, then it is full
        ((1, PACKED_BYTES + 1, 1, 1), ((0,), (1,), (2, 3))),  # too large to share
    ],
)
def test_small_tensors_share_a_buffer(sizes, parts) -> None:
    assert Layout(shapes(*sizes)).parts == parts


def test_a_packed_message_comes_back_aligned() -> None:
    tensors = (
        torch.tensor([True]),
        torch.arange(3, dtype=torch.float64),
        torch.tensor(2, dtype=torch.int16),
    )
    layout = Layout.of(tensors)
    (buffer,) = layout.pack(tensors)
    assert buffer.numel() == 16 + 32 + 2  # 1 and 24 bytes padded to multiples of 16, 2 at the end
    received = layout.unpack([buffer], torch.device("cpu"))
    assert all(one.equal(other) for one, other in zip(received, tensors, strict=True))
    (empty,) = layout.empty(torch.device("cpu"))
    assert (empty.dtype, empty.shape) == (buffer.dtype, buffer.shape)


def test_a_contiguous_tensor_is_not_copied() -> None:
    tensor = torch.zeros(4)
    (buffer,) = Layout.of((tensor,)).pack((tensor,))
    assert buffer.data_ptr() == tensor.data_ptr()
    (received,) = Layout.of((tensor,)).unpack([buffer], torch.device("cpu"))
    assert received.data_ptr() == tensor.data_ptr()
