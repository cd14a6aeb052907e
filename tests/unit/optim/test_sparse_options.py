"""``optim.sparse``: every option is checked, listed, and reaches the table that it is for."""

from typing import Any

import pytest

from neo.optim.spec import OptimConfig, SparseOptimizerConfig, WeightDecayMode
from neo.tables.spec import WeightsDtype


def findings(**values: Any) -> list[str]:
    return [str(finding) for finding in SparseOptimizerConfig(**values).validate()]


OF_ALL = "++optim.sparse.tables.a.{}=NUMBER, or leave it out to have that of all tables"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"weight_decay": -1.0}, "weight_decay: -1.0 is below the limit 0; write 0 or more"),
        (
            {"weight_decay": 0.1, "weight_decay_mode": "decoupledd"},
            "weight_decay_mode: 'decoupledd' is not a kind of weight decay; did you mean 'decoupled'? "
            "Choices: decoupled, l2",
        ),
        (
            {"weight_decay_mode": "decoupled"},
            "weight_decay_mode: 'decoupled' has no effect without weight decay; leave it at l2, or give a "
            "weight_decay above 0",
        ),
        (
            {"stochastic_rounding": False},
            "stochastic_rounding: false has no effect on 'fp32'; leave it at true, or use fp16 or bf16",
        ),
        (
            {"name": "partial_rowwise_adam", "initial_accumulator": 1.0},
            "initial_accumulator: 1.0 has no effect on 'partial_rowwise_adam'; leave it at 0.0, or use adagrad or "
            "rowwise_adagrad",
        ),
        ({"tables": {"a": {"lr": -1.0}}}, "tables.a.lr: -1.0 is below the limit 0; write 0 or more"),
        ({"tables": {"a": {"lr": float("inf")}}}, "tables.a.lr: inf is not a finite number; write 0 or more"),
        ({"name": "adam", "tables": {"a": {"beta1": 1.0}}}, "tables.a.beta1: 1.0 is outside [0, 1)"),
        ({"tables": {"a": {"lr": "fast"}}}, f"tables.a.lr: 'fast' is not a number; write {OF_ALL.format('lr')}"),
        ({"tables": {"a": {"lr": None}}}, f"tables.a.lr: null is not a number; write {OF_ALL.format('lr')}"),
        (
            {"tables": {"a": {"eps": True}}},
            f"tables.a.eps: 'true' is not a number; write {OF_ALL.format('eps')}",
        ),
        (
            {"tables": {"a": None}},
            "tables.a: null is not a mapping of hyper-parameters; write ++optim.sparse.tables.a.lr=0.1",
        ),
        ({"weight_decay": float("inf")}, "weight_decay: inf is not a finite number; write 0 or more"),
        *(
            (
                {"tables": {"a": {key: "x"}}},
                f"tables.a.{key}: is the same for all tables: it decides memory and kernel; set optim.sparse.{key}; a "
                "table's own can be beta1, beta2, eps, initial_accumulator, lr",
            )
            for key in ("name", "weights_dtype", "weight_decay", "weight_decay_mode", "stochastic_rounding")
        ),
        (
            {"tables": {"a": {"beta1": 0.5}}},
            "tables.a.beta1: 0.5 has no effect on 'rowwise_adagrad'; leave it out, or use adam or partial_rowwise_adam",
        ),
        (
            {"tables": {"a": {"lrr": 0.5}}},
            "tables.a.lrr: 'lrr' is not a hyper-parameter of a table; did you mean 'lr'? "
            "Choices: beta1, beta2, eps, initial_accumulator, lr",
        ),
        (
            {"tables": {"a": 0.5}},
            "tables.a: '0.5' is not a mapping of hyper-parameters; write ++optim.sparse.tables.a.lr=0.1",
        ),
        (
            {"tables": {"a": {}}},
            "tables.a: '{}' is not a mapping of hyper-parameters; write ++optim.sparse.tables.a.lr=0.1",
        ),
    ],
)
def test_a_mistake_is_found(values: dict[str, Any], text: str) -> None:
    assert findings(**values) == [text]


def test_r12_every_option_arrives_in_the_spec() -> None:
    config = OptimConfig()
    config.sparse = SparseOptimizerConfig(
        name="adam",
        lr=0.5,
        eps=0.25,
        beta1=0.125,
        beta2=0.0625,
        weights_dtype="bf16",
        weight_decay=0.75,
        weight_decay_mode="decoupled",
        stochastic_rounding=False,
        tables={"b": {"lr": 0.1, "beta1": 0}, "a": {"eps": 2}},
    )
    assert config.validate() == []
    spec = config.to_spec()
    sparse = spec.sparse
    assert (sparse.name, sparse.lr, sparse.eps, sparse.beta1, sparse.beta2) == ("adam", 0.5, 0.25, 0.125, 0.0625)
    assert (sparse.weights_dtype, sparse.stochastic_rounding) == (WeightsDtype.BF16, False)
    assert (sparse.weight_decay, sparse.weight_decay_mode) == (0.75, WeightDecayMode.DECOUPLED)
    assert spec.sparse_for("c") == sparse
    assert (spec.sparse_for("b").lr, spec.sparse_for("b").beta1, spec.sparse_for("b").eps) == (0.1, 0.0, 0.25)
    assert (spec.sparse_for("a").lr, spec.sparse_for("a").eps) == (0.5, 2.0)
    assert [table.name for table in spec.tables] == ["a", "b"]
