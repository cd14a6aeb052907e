"""CUDA paths: the same lookups, exchanges and runs as on the CPU. Skipped, with the reason, where there is no GPU."""

from pathlib import Path

import pytest
import torch

from integration.run_parent import prepare, train
from neo.ops.pooled_lookup import LocalTable
from neo.ops.reference.pooled_lookup import ReferencePooledLookup
from neo.ops.spec import POOLED_LOOKUPS
from neo.optim.spec import SparseOptimizerSpec
from worker_pool import WorkerPool

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
TABLES = [LocalTable("a", 50, 8), LocalTable("b", 20, 16)]
SLOTS = [0, 0, 1]


def step(device: str, backend: str, optimizer: SparseOptimizerSpec, weighted: bool) -> list[torch.Tensor]:
    """Return outputs, tables and the weights' gradient after two steps."""
    op = POOLED_LOOKUPS.get(backend)(TABLES, slots=SLOTS, optimizer=optimizer, device=torch.device(device))
    generator = torch.Generator().manual_seed(0)
    for weight in op.weights():
        weight.copy_(torch.randn(weight.shape, generator=generator).to(device))
    results = []
    for _ in range(2):
        lengths = torch.randint(0, 4, (3, 6), generator=generator)
        counts = lengths.sum(dim=1).tolist()
        ids = [
            torch.randint(0, TABLES[t].num_rows, (n,), generator=generator) for t, n in zip(SLOTS, counts, strict=True)
        ]
        values = torch.cat(ids).to(device)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.flatten().cumsum(0)]).to(device)
        factors = torch.rand(values.numel(), generator=generator).to(device).requires_grad_() if weighted else None
        pooled = op(values, offsets, factors)
        pooled.backward(torch.randn(pooled.shape, generator=generator).to(device))
        results += [pooled.detach().cpu()]
        if factors is not None and factors.grad is not None:
            results.append(factors.grad.cpu())
    return [*results, *(weight.cpu() for weight in op.weights())]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["sgd", "adagrad", "rowwise_adagrad", "adam"])
@pytest.mark.parametrize("backend", ["reference", "fbgemm"])
def test_lookups_on_cuda_equal_those_on_the_cpu(backend: str, name: str, weighted: bool) -> None:
    if backend == "fbgemm" and name == "adam":
        pytest.skip("the capability matrix gives Adam to the reference")
    optimizer = SparseOptimizerSpec(name, lr=0.125, eps=2.0**-6)
    assert POOLED_LOOKUPS.get("reference") is ReferencePooledLookup
    expected = step("cpu", "reference", optimizer, weighted)
    for got, want in zip(step("cuda", backend, optimizer, weighted), expected, strict=True):
        # Sums of up to 12 Gaussian values in another order, then a square root: a few float32 roundings.
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sharding", ["table_wise", "row_wise", "column_wise", "data_parallel"])
def test_a_run_on_one_gpu_equals_one_on_the_cpu(worker_pool: WorkerPool, tmp_path: Path, sharding: str) -> None:
    losses = []
    for accelerator in ("cpu", "cuda"):
        run_dir = tmp_path / accelerator
        run_dir.mkdir()
        settings = {"max_steps": 11, "accelerator": accelerator}
        config = prepare(run_dir, 1, sharding={"type": sharding}, trainer=settings)
        losses.append(worker_pool.run(1, train, config, run_dir, timeout_s=120)[0]["val"]["log_loss"])
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)
