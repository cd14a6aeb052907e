"""R4, R5, R10 to R13 and R16 of one kernel; the sharded ones are in ``tests/unit/sharded``."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from neo.ops.pooled_lookup import LocalTable, MergedGradient, PooledLookup
from neo.ops.spec import POOLED_LOOKUPS, Device, refusal
from neo.optim.spec import SPARSE_OPTIMIZERS, SparseOptimizerSpec, WeightDecayMode
from neo.tables.spec import TableSpec, WeightsDtype
from neo.testing.reference_optimizers import ReferenceOptimizer

CPU = torch.device("cpu")
KERNELS = [
    (backend, name)
    for backend in ("reference", "fbgemm")
    for name in SPARSE_OPTIMIZERS
    if refusal(backend, Device.CPU, TableSpec("t", 8, 4, ("f",)), 4, SparseOptimizerSpec(name)) is None
]


def kernel(backend: str, optimizer: SparseOptimizerSpec, tables: Sequence[LocalTable], seed: int = 0) -> PooledLookup:
    op = POOLED_LOOKUPS.get(backend)(tables, slots=range(len(tables)), optimizer=optimizer, device=CPU, seed=seed)
    assert isinstance(op, PooledLookup)
    return op


def one_hot(op: PooledLookup, ids: Tensor, gradient: Tensor) -> None:
    """Look up one id per bag and step with ``gradient`` ``[B, D]``."""
    op(ids, torch.arange(ids.numel() + 1), None).backward(gradient)


@pytest.mark.parametrize("backend", ["reference", "fbgemm"])
def test_r4_one_exact_step_per_batch(backend: str) -> None:
    op = kernel(backend, SparseOptimizerSpec("rowwise_adagrad", lr=0.1, eps=0.0), [LocalTable("t", 1, 4)])
    op.weights()[0].zero_()
    one_hot(op, torch.zeros(2, dtype=torch.int64), torch.tensor([[1.0] * 4, [3.0] * 4]))
    torch.testing.assert_close(op.weights()[0], torch.full((1, 4), -0.1))
    assert op.states()[0]["sum"].tolist() == [16.0]


@pytest.mark.parametrize(("backend", "name"), KERNELS)
def test_r11_one_id_a_hundred_thousand_times(backend: str, name: str) -> None:
    count = 100_000
    optimizer = SparseOptimizerSpec(name, lr=0.1, eps=2.0**-6)
    op = kernel(backend, optimizer, [LocalTable("t", 10, 4)])
    op.weights()[0].fill_(1.0)
    weight = np.ones((10, 4))
    gradient = (torch.arange(4 * count).view(count, 4) % 7 - 3) / 8.0
    started = time.perf_counter()
    one_hot(op, torch.full((count,), 7), gradient)
    assert time.perf_counter() - started < 30
    total = gradient.double().sum(dim=0, keepdim=True).numpy()
    ReferenceOptimizer(optimizer, 10, 4).step(weight, np.array([7]), total, 1)
    np.testing.assert_allclose(op.weights()[0].numpy(), weight, rtol=0, atol=2e-6 * max(1.0, abs(weight).max()))


@pytest.mark.parametrize(("backend", "name"), KERNELS)
def test_r12_every_hyper_parameter_reaches_the_kernel(backend: str, name: str) -> None:
    """One step from 1 with gradient 1, against the formula with exactly these numbers."""
    values: dict[str, Any] = {"eps": 0.5, "beta1": 0.25, "beta2": 0.75, "initial_accumulator": 3.0}
    base = SparseOptimizerSpec(name, lr=0.3)
    optimizer = replace(base, **{key: values[key] for key in base.reads})
    op = kernel(backend, optimizer, [LocalTable("t", 1, 4)])
    op.weights()[0].fill_(1.0)
    for _ in range(2):
        one_hot(op, torch.zeros(1, dtype=torch.int64), torch.ones(1, 4))
    if name == "sgd":
        expected = 1 - 2 * 0.3
    elif "adagrad" in name:
        expected = 1 - 0.3 / (4.0**0.5 + 0.5) - 0.3 / (5.0**0.5 + 0.5)
    else:  # Corrected for their bias, both moments are 1.
        expected = 1 - 2 * 0.3 / 1.5
    torch.testing.assert_close(op.weights()[0], torch.full((1, 4), expected), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("mode", "expected"), [(WeightDecayMode.L2, 0.85), (WeightDecayMode.DECOUPLED, 0.85)])
def test_r12_weight_decay_of_sgd(mode: WeightDecayMode, expected: float) -> None:
    optimizer = SparseOptimizerSpec("sgd", lr=0.1, weight_decay=0.5, weight_decay_mode=mode)
    op = kernel("reference", optimizer, [LocalTable("t", 2, 4)])
    op.weights()[0].fill_(1.0)
    one_hot(op, torch.zeros(1, dtype=torch.int64), torch.ones(1, 4))
    torch.testing.assert_close(op.weights()[0], torch.tensor([[expected] * 4, [1.0] * 4]))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        # The accumulator sees (1 + 0.5 * 1)^2 = 2.25, and the step is 0.1 * 1.5 / 1.5.
        (WeightDecayMode.L2, 0.9),
        # The step is 0.1 * 1 / 1, and beside it 0.1 * 0.5 * 1.
        (WeightDecayMode.DECOUPLED, 0.85),
    ],
)
def test_r12_weight_decay_of_adagrad(mode: WeightDecayMode, expected: float) -> None:
    optimizer = SparseOptimizerSpec("adagrad", lr=0.1, eps=0.0, weight_decay=0.5, weight_decay_mode=mode)
    op = kernel("reference", optimizer, [LocalTable("t", 1, 4)])
    op.weights()[0].fill_(1.0)
    one_hot(op, torch.zeros(1, dtype=torch.int64), torch.ones(1, 4))
    torch.testing.assert_close(op.weights()[0], torch.full((1, 4), expected))


def updated(steps: int, *, rounds: bool, seed: int = 0) -> Tensor:
    """Return 256 rows of ones after ``steps`` updates of -1e-5."""
    optimizer = SparseOptimizerSpec("sgd", lr=1.0, weights_dtype=WeightsDtype.FP16, stochastic_rounding=rounds)
    op = kernel("reference", optimizer, [LocalTable("t", 256, 4, key="t")], seed)
    op.weights()[0].fill_(1.0)
    merged = [MergedGradient(torch.arange(256), torch.full((256, 4), 1e-5))]
    for _ in range(steps):
        op.apply(merged)
    return op.weights()[0].float()


def test_r13_fp16_tables_round_stochastically() -> None:
    weights = updated(10_000, rounds=True)
    assert abs(float(weights.mean()) - 0.9) <= 0.003
    # 256 independent rows: the correlation of two columns has a standard deviation of 1/16.
    correlation = torch.corrcoef(weights.T) - torch.eye(4)
    assert correlation.abs().max() < 5 / 16
    assert torch.equal(updated(300, rounds=True), updated(300, rounds=True))
    assert not torch.equal(updated(300, rounds=True), updated(300, rounds=True, seed=1))


def test_r13_without_stochastic_rounding_small_updates_are_lost() -> None:
    assert torch.equal(updated(10_000, rounds=False), torch.ones(256, 4))


@pytest.mark.parametrize("backend", ["reference", "fbgemm"])
def test_r16_the_learning_rate_of_each_step(backend: str) -> None:
    op = kernel(backend, SparseOptimizerSpec("sgd", lr=0.1), [LocalTable("t", 1, 4)])
    op.weights()[0].zero_()
    deltas = []
    for rate in (0.1, 0.1, 0.05):
        before = op.weights()[0].clone()
        op.set_learning_rate(rate)
        one_hot(op, torch.zeros(1, dtype=torch.int64), torch.ones(1, 4))
        deltas.append(float((op.weights()[0] - before)[0, 0]))
    assert deltas == pytest.approx([-0.1, -0.1, -0.05], abs=1e-7)


@pytest.mark.parametrize("name", list(SPARSE_OPTIMIZERS))
def test_a_row_that_has_seen_only_zeros_stays_without_an_eps(name: str) -> None:
    op = kernel("reference", SparseOptimizerSpec(name, lr=0.1, eps=0.0), [LocalTable("t", 1, 4)])
    op.weights()[0].fill_(1.0)
    one_hot(op, torch.zeros(2, dtype=torch.int64), torch.tensor([[1.0] * 4, [-1.0] * 4]))
    assert torch.equal(op.weights()[0], torch.ones(1, 4))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"weights_dtype": WeightsDtype.BF16}, "fbgemm does not train bf16 weights on cpu (it has fp16, fp32)"),
        ({"weights_dtype": WeightsDtype.FP16}, "fbgemm does not round fp16 weights stochastically on cpu"),
        (
            {"name": "adagrad", "weights_dtype": WeightsDtype.FP16, "stochastic_rounding": False},
            "fbgemm has no exact adagrad of fp16 weights on cpu",
        ),
        ({"weight_decay": 0.1}, "fbgemm has no l2 weight decay on cpu"),
        ({"name": "adam"}, "fbgemm has no adam on cpu (it has adagrad, rowwise_adagrad, sgd)"),
    ],
)
def test_what_fbgemm_would_ignore_is_refused(changed: dict[str, Any], text: str) -> None:
    table = TableSpec("t", 8, 4, ("f",))
    assert refusal("fbgemm", Device.CPU, table, 4, SparseOptimizerSpec(**changed)) == text
    assert refusal("reference", Device.CPU, table, 4, SparseOptimizerSpec(**changed)) is None
