"""A user's own module with Lightning's own checkpoint calls: saved by some ranks, taken up by others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.optim.lr_scheduler import LambdaLR

from click_module import Batches, ClickModule, Trained, samples, trainer
from neo.data.batch import Batch, split_evenly
from neo.errors import CheckpointError
from neo.optim.spec import SparseOptimizerSpec
from neo.strategy.neo_strategy import NeoStrategy
from worker_pool import WorkerPool

ADAM = SparseOptimizerSpec(name="adam", lr=0.05)
STEPS = [samples(size, seed) for seed, size in enumerate([8, 7, 8, 6])]


class Scheduled(ClickModule):
    """Dense Adam, a schedule, and layers whose gradients do not come in the order of the code: all must be kept."""

    def __init__(self, sparse: SparseOptimizerSpec) -> None:
        super().__init__(sparse)
        del self.linear
        with torch.random.fork_rng():
            torch.manual_seed(5)
            self.last = torch.nn.Linear(31, 1)
            self.linear = torch.nn.Linear(15, 31)

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        inputs = torch.cat((batch.dense, self.embeddings.start(batch.sparse).wait()), dim=1)
        logits = self.last(self.linear(inputs).relu()).squeeze(1)
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, batch.labels)

    def configure_optimizers(self) -> Any:
        groups = [{"params": self.dense_parameters(), "name": "dense"}, self.embeddings.sparse_parameter_group()]
        optimizer = torch.optim.Adam(groups, lr=self.dense_lr)
        schedule = LambdaLR(optimizer, lambda step: 1.0 / (1 + step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def own(steps: Sequence[Any]) -> Batches:
    """Return this rank's part of every step."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    return Batches([step.part(*split_evenly(len(step.labels), rank, world_size)) for step in steps])


def trained(module: ClickModule) -> Trained:
    tables = {table.name: module.embeddings.full_weight(table.name) for table in module.embeddings.tables}
    states = {
        f"{table.name}/{name}": value
        for table in module.embeddings.tables
        for name, value in module.embeddings.full_state(table.name).items()
    }
    return Trained(tables | states, {name: value.detach().clone() for name, value in module.named_parameters()})


def run(sharding: str, epochs: int, saved: Path | None, resumed: Path | None) -> Trained:
    """Train; a checkpoint after every epoch goes below ``saved``."""
    module, strategy = Scheduled(ADAM), NeoStrategy(sharding=sharding, backend="reference", seed=3)
    options: dict[str, Any] = {"max_epochs": epochs}
    if saved is not None:
        keep = ModelCheckpoint(saved, filename="{epoch}", save_top_k=-1, save_last="link")
        options |= {"callbacks": [keep], "enable_checkpointing": True}
    trainer(strategy, **options).fit(module, own(STEPS), ckpt_path=None if resumed is None else str(resumed))
    return trained(module)


@pytest.mark.parametrize(("sharding", "world_size"), [("row_wise", 4), ("column_wise", 3), ("data_parallel", 1)])
def test_a_run_goes_on_on_other_ranks_under_another_plan(
    worker_pool: WorkerPool, tmp_path: Path, sharding: str, world_size: int
) -> None:
    ended = worker_pool.run(4, run, "row_wise", 3, tmp_path, None)[0]
    for epoch in (0, 1):
        found = worker_pool.run(world_size, run, sharding, 3, None, tmp_path / f"epoch={epoch}.ckpt")[0]
        for name, value in {**ended.tables, **ended.dense}.items():
            same_ranks = (sharding, world_size) == ("row_wise", 4)
            tolerance = 0 if same_ranks else 1e-6
            reached = {**found.tables, **found.dense}[name]
            torch.testing.assert_close(reached, value, rtol=0, atol=tolerance, msg=name)


def load_weights(path: Path) -> tuple[Trained, Trained]:
    """Load weights alone, into a trained module, and return it before and after."""

    class Loading(pl.Callback):
        def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            strategy = trainer.strategy
            assert isinstance(strategy, NeoStrategy)
            assert isinstance(pl_module, ClickModule)
            before.append(trained(pl_module))
            strategy.load_weights(path)

    before: list[Trained] = []
    module, strategy = Scheduled(ADAM), NeoStrategy(sharding="table_wise", backend="reference", seed=4)
    trainer(strategy, callbacks=[Loading()]).fit(module, own(STEPS[:1]))
    return before[0], trained(module)


def test_weights_alone_leave_the_optimizer_states(worker_pool: WorkerPool, tmp_path: Path) -> None:
    ended = worker_pool.run(2, run, "row_wise", 1, tmp_path, None)[0]
    before, after = worker_pool.run(2, load_weights, tmp_path / "last.ckpt")[0]
    assert torch.equal(after.tables["items"], ended.tables["items"])
    assert torch.equal(after.tables["items/exp_avg"], before.tables["items/exp_avg"])
    assert torch.equal(after.dense["last.weight"], ended.dense["last.weight"])


def resume_other_dense(path: Path) -> None:
    module, strategy = Scheduled(ADAM), NeoStrategy(sharding="row_wise", backend="reference")
    module.last = torch.nn.Linear(31, 2)
    trainer(strategy).fit(module, own(STEPS), ckpt_path=str(path))


def test_another_dense_part_is_refused(worker_pool: WorkerPool, tmp_path: Path) -> None:
    worker_pool.run(2, run, "row_wise", 1, tmp_path, None)
    with pytest.raises(
        CheckpointError, match=r"(?s)is a checkpoint of another model: .*size mismatch for last\.weight"
    ):
        worker_pool.run(2, resume_other_dense, tmp_path / "epoch=0.ckpt")
