"""R21 and R23: malformed batches are refused when they are built."""

from typing import Any

import pytest
import torch
from torch import Tensor

from neo.data.batch import Batch, SparseFeatures, split_evenly
from neo.errors import DataError

KEYS = ["a", "b", "c"]


def ints(*values: int, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((KEYS, ints(1, 1, 1, 1, 1, 1, 1), ints(*range(7))), "7 lengths do not divide over 3 keys ('a', 'b', 'c')"),
        ((KEYS, ints(1, 2, 3), ints(1, 2)), "the lengths add up to 6, but there are 2 values"),
        ((KEYS, ints(1, 1, 1, -1, 1, 1), ints(1, 2, 3, 4)), "length -1 of feature 'b', sample 1 is negative"),
        ((KEYS, ints(1, 1, 1), ints(1, 2, 3), torch.ones(2)), "there are 3 values, but weights of shape [2]"),
        ((KEYS, ints(1, 1, 1), ints(1, 2, 3), ints(1, 2, 3)), "weights must be floating point, not torch.int64"),
        ((KEYS, ints(1, 1, 1), torch.ones(3)), "sparse values must be int32 or int64, not torch.float32"),
        ((KEYS, torch.ones(3), ints(1, 2, 3)), "sparse lengths must be int32 or int64, not torch.float32"),
        ((KEYS, ints(1, 1, 1).view(3, 1), ints(1, 2, 3)), "sparse lengths must have one dimension, not shape [3, 1]"),
        (("abc", ints(1, 1, 1), ints(1, 2, 3)), "sparse keys must be a list of names, not the text 'abc'"),
        ((KEYS, [1, 1, 1], ints(1, 2, 3)), "sparse lengths must be a tensor, not list"),
        ((["a"], ints(2), ints(1, 2), torch.tensor([1.0, torch.nan])), "weight nan is not finite"),
        ((["a", "a"], ints(1, 1), ints(1, 2)), "sparse keys ('a', 'a') are not unique"),
        (([], ints(1), ints(1)), "1 lengths are given but no keys"),
        ((["a"], ints(1), ints(1), None, [True]), "weighted (True,) does not fit keys ('a',) and weights none"),
    ],
)
def test_r21_malformed_features(parts: Any, text: str) -> None:
    with pytest.raises(DataError) as error:
        SparseFeatures(*parts)
    assert text in str(error.value)


@pytest.mark.parametrize("lengths", [torch.int32, torch.int64])
@pytest.mark.parametrize("values", [torch.int32, torch.int64])
def test_r21_any_mix_of_integers_is_the_same(lengths: torch.dtype, values: torch.dtype) -> None:
    features = SparseFeatures(KEYS, ints(1, 0, 2, 1, 0, 0, dtype=lengths), ints(5, 6, 7, 8, dtype=values))
    expected = SparseFeatures(KEYS, ints(1, 0, 2, 1, 0, 0), ints(5, 6, 7, 8))
    assert features.lengths.dtype == features.values.dtype == torch.int64
    assert torch.equal(features.lengths, expected.lengths)
    assert torch.equal(features.values, expected.values)
    assert (features.batch_size, features.weighted) == (2, (False, False, False))


def batch_of(labels: Tensor, dense_rows: int, samples: int) -> Batch:
    sparse = SparseFeatures(["a"], torch.ones(samples, dtype=torch.int64), torch.arange(samples))
    return Batch(torch.zeros(dense_rows, 2), sparse, labels, index=7, first_sample=100)


@pytest.mark.parametrize("label", [2.0, -0.1, float("nan"), float("inf")])
def test_r23_a_bad_label_names_the_batch(label: float) -> None:
    with pytest.raises(DataError) as error:
        batch_of(torch.tensor([0.0, 1.0, label]), 3, 3)
    assert str(error.value) == f"batch 7: label {torch.tensor(label).item()} of sample 102 is outside [0, 1]"


def test_r21_parts_of_a_batch_must_agree() -> None:
    text = "batch 7: 3 labels, 2 rows of dense features and 4 samples of sparse features do not agree"
    with pytest.raises(DataError, match=text):
        batch_of(torch.zeros(3), 2, 4)


def test_empty_batch_and_move() -> None:
    batch = batch_of(torch.zeros(0), 0, 0)
    assert (batch.batch_size, batch.sparse.batch_size) == (0, 0)
    moved = batch_of(torch.ones(2), 2, 2).to("cpu")
    assert (moved.index, moved.first_sample, moved.batch_size) == (7, 100, 2)
    assert moved.sparse.keys == ("a",)
    assert moved.sparse.lengths_by_feature.tolist() == [[1, 1]]


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_split_evenly_covers_everything_once(world_size: int) -> None:
    for total in (0, 1, 5, 64):
        ranges = [split_evenly(total, rank, world_size) for rank in range(world_size)]
        assert [i for low, high in ranges for i in range(low, high)] == list(range(total))
        sizes = {high - low for low, high in ranges}
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_any_floating_type_are_used_as_float32(dtype: torch.dtype) -> None:
    weights = torch.tensor([0.5, 2.0], dtype=dtype, requires_grad=True)
    features = SparseFeatures(["a"], ints(2), ints(1, 2), weights)
    assert features.weights is not None
    assert features.weights.dtype == torch.float32
    features.weights.sum().backward()
    assert weights.grad is not None
