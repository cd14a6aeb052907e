"""The sharding suite itself: what it lets pass, and the mistakes that it finds."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from neo.comms.codecs import Fp32Codec
from neo.ops.reference.pooled_lookup import ReferencePooledLookup
from neo.plan.sharding_plan import ShardingType
from neo.sharded.row_states import RowStates
from neo.tables.spec import WeightsDtype
from neo.testing.random_problem import Choices, Problem
from neo.testing.sharding_suite import ShardingSuite, check

PLAIN = Choices(kernels=("reference",), codecs=("fp32",), weights_dtypes=(WeightsDtype.FP32,), max_rows=20, max_dim=12)


class TestTheReferenceBackendAlone(ShardingSuite):
    """As an author would use it, with a single kernel."""

    choices = PLAIN
    seeds = range(12)


def _complaint(choices: Choices = PLAIN) -> str:
    """Return the first complaint of the suite."""
    for seed in range(40):
        try:
            check(Problem(seed, choices))
        except AssertionError as error:
            made_again = any(f"seed={seed}" in note for note in error.__notes__)
            return str(error) if made_again else "a complaint that does not tell its problem"
    return "nothing found"


def _is_about_numbers(complaint: str) -> bool:
    return "beyond its bound" in complaint or "max|difference|" in complaint


def test_a_gradient_that_is_a_little_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    step = ReferencePooledLookup.step

    def broken(self: Any, values: Tensor, offsets: Tensor, weights: Tensor | None, gradient: Tensor, lr: float) -> None:
        step(self, values, offsets, weights, gradient * (1 + 1e-4), lr)

    monkeypatch.setattr(ReferencePooledLookup, "step", broken)
    assert _is_about_numbers(_complaint())


def test_squares_of_the_own_columns_only_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    mean_squares = RowStates.mean_squares

    def alone(self: RowStates, rows: Sequence[Tensor], squares: Sequence[Tensor]) -> list[Tensor]:
        mean_squares(self, rows, squares)  # the exchange itself must go on
        return [own / dim for own, dim in zip(squares, self._dims, strict=True)]

    monkeypatch.setattr(RowStates, "mean_squares", alone)
    columns = Choices(
        kernels=("reference",),
        optimizers=("rowwise_adagrad",),
        codecs=("fp32",),
        weights_dtypes=(WeightsDtype.FP32,),
        sharding_types=(ShardingType.COLUMN_WISE, ShardingType.GRID),
    )
    assert _is_about_numbers(_complaint(columns))


def test_a_codec_that_is_worse_than_it_says_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounded(self: Fp32Codec, rows: Tensor, widths: Sequence[int], *, scale: float = 1.0) -> Tensor:
        return rows.to(torch.bfloat16).float()

    monkeypatch.setattr(Fp32Codec, "encode", rounded)
    assert _is_about_numbers(_complaint())
