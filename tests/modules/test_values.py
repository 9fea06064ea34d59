"""Nests of tensors come back as they were, also over a transport that knows tensors only."""

from typing import Any

import pytest
import torch
from torch import Tensor

from evener.errors import UsageError
from evener.modules.values import flatten, from_message, to_message, unflatten

A, B = torch.ones(2), torch.zeros(3, dtype=torch.int64)


@pytest.mark.parametrize(
    "value",
    [A, None, (A, B), [A], (A,), (), {"a": A, "b": (None, [B, A])}, ((), [None]), {"": A}],
)
def test_a_nest_comes_back(value: Any) -> None:
    skeleton, tensors = flatten(value)
    message = to_message(skeleton, tensors)
    assert all(isinstance(part, Tensor) for part in message)
    returned_skeleton, returned = from_message(message)
    assert returned_skeleton == skeleton
    back = unflatten(returned_skeleton, iter(returned))
    assert str(back) == str(value)


def test_a_lone_tensor_travels_alone() -> None:
    assert to_message(*flatten(A)) == (A,)


@pytest.mark.parametrize(
    ("value", "kind"), [(3, "int"), ((A, "x"), "str"), ([{1: A}], "dict"), ({A}, "set")]
)
def test_anything_else_is_refused(value: Any, kind: str) -> None:
    with pytest.raises(UsageError) as caught:
        flatten(value)
    assert str(caught.value) == (
        "a stage returned what cannot be sent\n"
        f"  got {kind}; stages exchange tensors, None, and tuples, lists and dicts with text keys "
        "of these: make a tensor of it, or give it to every stage in the batch"
    )
