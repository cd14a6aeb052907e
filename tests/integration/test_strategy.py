"""NeoStrategy on real ranks: exact for any split and plan, learning rates, agreement, refusals."""

import itertools
import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torch.distributed as dist
from torch.optim.lr_scheduler import LambdaLR

from click_module import TABLES, Batches, ClickModule, Samples, Trained, fit, samples, trainer
from neo.data.batch import Batch
from neo.errors import ConfigError, UnsupportedError
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import Shard, ShardingPlan, ShardingType, TablePlan
from neo.strategy.agreement import RanksDisagreeError
from neo.strategy.neo_strategy import NeoStrategy
from worker_pool import WorkerPool

SGD = SparseOptimizerSpec(name="sgd", lr=0.5)
ADAGRAD = SparseOptimizerSpec(name="rowwise_adagrad", lr=0.1)
STEPS = [samples(size, seed) for seed, size in enumerate([8, 8, 7, 1])]


def train_split(
    optimizer: SparseOptimizerSpec,
    sharding: str,
    steps: Sequence[Samples],
    splits: Sequence[Sequence[int]],
    **options: Any,
) -> Trained:
    """Train on global batches; rank r gets ``splits[step][r]`` samples of each."""
    rank = dist.get_rank()
    own = [step.part(sum(split[:rank]), sum(split[: rank + 1])) for step, split in zip(steps, splits, strict=True)]
    return fit(ClickModule(optimizer), NeoStrategy(sharding=sharding, seed=3), Batches(own), **options)


def close(found: Trained, expected: Trained, tolerance: float = 1e-6) -> None:
    for name, value in {**expected.tables, **expected.dense}.items():
        torch.testing.assert_close({**found.tables, **found.dense}[name], value, rtol=0, atol=tolerance, msg=name)


@pytest.fixture(scope="module")
def one_rank(worker_pool: WorkerPool) -> dict[str, Trained]:
    splits = [[len(step.labels)] for step in STEPS]
    return {o.name: worker_pool.run(1, train_split, o, "table_wise", STEPS, splits)[0] for o in (SGD, ADAGRAD)}


@pytest.mark.parametrize("optimizer", [SGD, ADAGRAD], ids=["sgd", "rowwise_adagrad"])
@pytest.mark.parametrize("sharding", ["auto", "table_wise", "row_wise", "column_wise", "data_parallel", "grid"])
@pytest.mark.parametrize("splits", [[(4, 4), (3, 5), (7, 0), (0, 1)]], ids=["uneven and empty"])
def test_any_split_trains_like_one_rank(
    worker_pool: WorkerPool,
    one_rank: dict[str, Trained],
    optimizer: SparseOptimizerSpec,
    sharding: str,
    splits: list[tuple[int, int]],
) -> None:
    for found in worker_pool.run(2, train_split, optimizer, sharding, STEPS, splits):
        close(found, one_rank[optimizer.name])


def train_per_shard() -> tuple[Trained, int]:
    """Train with column shards that keep their own state; return also the bytes sent."""
    rank = dist.get_rank()
    strategy = NeoStrategy(sharding="column_wise", column_wise_semantics="per_shard", seed=3)
    assert strategy.traffic.within_nodes == 0
    own = [step.part(4 * rank, 4 * rank + 4) for step in STEPS[:2]]
    return fit(ClickModule(ADAGRAD), strategy, Batches(own)), strategy.traffic.within_nodes


def test_r6_per_shard_trains_another_model(worker_pool: WorkerPool) -> None:
    exact = worker_pool.run(2, train_split, ADAGRAD, "column_wise", STEPS[:2], [(4, 4), (4, 4)])[0]
    for found, sent in worker_pool.run(2, train_per_shard):
        assert float((found.tables["items"] - exact.tables["items"]).abs().max()) > 1e-3
        assert sent > 0


def train_on_two_nodes() -> tuple[Trained, int, int]:
    """Train as two nodes of two ranks; return also a node's ranks in the plan, and the bytes sent to the other node."""
    rank, module, strategy = dist.get_rank(), ClickModule(ADAGRAD), NeoStrategy(sharding="grid", seed=3)
    os.environ |= {"GROUP_RANK": str(rank // 2), "LOCAL_RANK": str(rank % 2), "LOCAL_WORLD_SIZE": "2"}
    own = [step.part(2 * rank, 2 * rank + 2) for step in STEPS[:2]]
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    running = pl.Trainer(
        accelerator="cpu", devices=2, num_nodes=2, strategy=strategy, max_epochs=1, enable_model_summary=False, **quiet
    )
    running.fit(module, Batches(own))
    tables = {table.name: module.embeddings.full_weight(table.name) for table in module.embeddings.tables}
    layout = module.embeddings.engine.layout
    return Trained(tables, {}), layout.local_world_size, strategy.traffic.between_nodes


def test_the_nodes_of_the_trainer_are_those_of_the_plan(worker_pool: WorkerPool) -> None:
    expected = worker_pool.run(1, train_split, ADAGRAD, "table_wise", STEPS[:2], [(8,), (8,)])[0]
    for found, local_world_size, sent in worker_pool.run(4, train_on_two_nodes):
        assert local_world_size == 2
        assert sent > 0
        close(found, Trained(expected.tables, {}))


def test_three_ranks_train_like_one(worker_pool: WorkerPool, one_rank: dict[str, Trained]) -> None:
    splits = [(3, 3, 2), (0, 8, 0), (2, 2, 3), (0, 1, 0)]
    for found in worker_pool.run(3, train_split, SGD, "column_wise", STEPS, splits):
        close(found, one_rank["sgd"])


def test_r17_the_same_run_twice_is_bit_equal(worker_pool: WorkerPool) -> None:
    splits = [(4, 4), (3, 5), (7, 0), (0, 1)]
    runs = [worker_pool.run(2, train_split, ADAGRAD, "row_wise", STEPS, splits, timeout_s=90)[0] for _ in range(2)]
    close(runs[0], runs[1], tolerance=0)


def test_bf16_mixed_keeps_tables_in_fp32(worker_pool: WorkerPool, one_rank: dict[str, Trained]) -> None:
    found = worker_pool.run(2, train_bf16)[0]
    close(found, one_rank["sgd"], tolerance=0.03)  # bf16 keeps 8 bits
    assert all(value.dtype == torch.float32 for value in found.tables.values())


def train_bf16() -> Trained:
    splits = [(4, 4), (3, 5), (4, 3), (1, 0)]
    return train_split(SGD, "row_wise", STEPS, splits, precision="bf16-mixed")


class ScheduledModule(ClickModule):
    """Loss with gradient 1 for every element of a row that one sample reads; the rate halves at step 2."""

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        pooled = self.embeddings.start(batch.sparse).wait()
        unused: torch.Tensor = self.linear(torch.zeros(1, 15))
        return pooled.sum() / batch.batch_size + 0 * unused.sum()

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        scheduler = LambdaLR(optimizer, lambda step: 0.5 if step >= 2 else 1.0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_train_start(self) -> None:
        self.rows = [self.embeddings.full_weight("user")[3]]

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.rows.append(self.embeddings.full_weight("user")[3])


def rows_under_schedule() -> tuple[list[torch.Tensor], list[str]]:
    step = Samples(torch.zeros(2, 3), [[3], [3]], [[], []], torch.zeros(2))
    rank = dist.get_rank()
    module = ScheduledModule(SparseOptimizerSpec(name="sgd", lr=0.1))
    strategy = NeoStrategy(sharding="row_wise")
    fit(module, strategy, Batches([step.part(rank, rank + 1)] * 3))
    return module.rows, [group["name"] for group in module.optimizers().param_groups]  # type: ignore[union-attr]


def test_r16_the_schedule_reaches_the_rows(worker_pool: WorkerPool) -> None:
    for rows, names in worker_pool.run(2, rows_under_schedule):
        deltas = [float((after - before)[0]) for before, after in itertools.pairwise(rows)]
        assert deltas == pytest.approx([-0.1, -0.1, -0.05], abs=1e-6)
        assert names == ["dense", "sparse"]


def two_plans(swapped: bool) -> tuple[str, float]:
    """Give rank 1 another plan, or the same tables in another order; return the error and the seconds until it."""
    rank = dist.get_rank()
    holders = (1, 0) if rank == 1 and not swapped else (0, 1)
    placed = {
        f"embeddings.{table.name}": TablePlan(
            ShardingType.TABLE_WISE, (Shard(holder, 0, table.num_embeddings, 0, table.embedding_dim),)
        )
        for table, holder in zip(TABLES, holders, strict=True)
    }
    tables = TABLES[::-1] if rank == 1 and swapped else TABLES
    started_s = time.monotonic()
    strategy = NeoStrategy(plan=ShardingPlan(2, 2, placed), fingerprints={"config": "c0ffee"})
    with pytest.raises(RanksDisagreeError) as error:
        fit(ClickModule(SGD, tables=tables), strategy, Batches([STEPS[0].part(0, 4)]))
    return str(error.value), time.monotonic() - started_s


@pytest.mark.parametrize("swapped", [False, True], ids=["other plan", "other order of tables"])
def test_r28_another_plan_on_one_rank_is_found(worker_pool: WorkerPool, swapped: bool) -> None:
    for message, elapsed_s in worker_pool.run(2, two_plans, swapped, timeout_s=30):
        assert elapsed_s < 10
        assert re.search(
            r"tables: \w{16} on rank 0 but \w{16} on rank 1"
            if swapped
            else r"plan: \w{16} on rank 0 but \w{16} on rank 1",
            message,
        )
        assert "config" not in message


def plan_for_another_world() -> None:
    placed = {
        f"embeddings.{t.name}": TablePlan(ShardingType.TABLE_WISE, (Shard(0, 0, t.num_embeddings, 0, t.embedding_dim),))
        for t in TABLES
    }
    fit(ClickModule(SGD), NeoStrategy(plan=ShardingPlan(4, 4, placed)), Batches([STEPS[0].part(0, 4)]))


def test_a_plan_for_another_world_is_refused(worker_pool: WorkerPool) -> None:
    with pytest.raises(ConfigError, match=r"plan\.world_size: .*4"):
        worker_pool.run(2, plan_for_another_world)


class WithoutGroup(ClickModule):
    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.dense_parameters(), lr=0.1)


def fit_without_group() -> None:
    fit(WithoutGroup(SGD), NeoStrategy(), Batches([STEPS[0].part(0, 4)]))


def test_a_module_without_the_sparse_group_is_told_the_line(worker_pool: WorkerPool) -> None:
    with pytest.raises(UnsupportedError) as error:
        worker_pool.run(2, fit_without_group)
    assert (
        'torch.optim.SGD([{"params": self.parameters()}, self.embeddings.sparse_parameter_group()], lr=...)'
    ) in str(error.value)


class OnlyTables(ClickModule):
    def __init__(self) -> None:
        super().__init__(replace(SGD, lr=1.0))
        del self.linear

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        return self.embeddings.start(batch.sparse).wait().sum() / max(batch.batch_size, 1)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD([self.embeddings.sparse_parameter_group()])


def fit_only_tables() -> torch.Tensor:
    module, rank = OnlyTables(), dist.get_rank()
    running = trainer(NeoStrategy(sharding="row_wise", seed=1))
    running.fit(
        module, Batches([Samples(torch.zeros(2, 3), [[0], [1]], [[], []], torch.zeros(2)).part(rank, rank + 1)])
    )
    return module.embeddings.full_weight("user")


def test_a_module_without_dense_parameters_trains(worker_pool: WorkerPool) -> None:
    alone, both = worker_pool.run(1, fit_only_tables)[0], worker_pool.run(2, fit_only_tables)[0]
    torch.testing.assert_close((alone - both)[0], torch.full((4,), -0.5))
    torch.testing.assert_close((alone - both)[1], torch.full((4,), 0.5))
    torch.testing.assert_close(alone[2:], both[2:], rtol=0, atol=0)
