"""Optimizer specs that a user builds without the configuration."""

import re
from typing import Any

import pytest

from neo.optim.spec import SparseOptimizerSpec


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"name": "adagrd"}, "name: 'adagrd' is not a sparse optimizer; did you mean 'adagrad'? Choices: "),
        ({"lr": -1.0}, "lr: -1.0 is below the limit 0; write 0 or more"),
        ({"lr": float("nan"), "beta1": 2.0}, "lr: nan is not a finite number; write 0 or more, beta1: 2.0 is"),
    ],
)
def test_a_sparse_optimizer_of_ones_own_is_checked_too(changed: Any, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"SparseOptimizerSpec: {text}")):
        SparseOptimizerSpec(**changed)
