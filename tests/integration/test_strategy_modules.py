"""Modules that are built unlike ours: two collections, validation before training, one that is not read."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from click_module import TABLES, Batches, ClickModule, samples, trainer
from neo.data.batch import Batch
from neo.errors import UnsupportedError
from neo.optim.spec import SparseOptimizerSpec
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.strategy.neo_strategy import NeoStrategy
from worker_pool import WorkerPool

STEPS = [samples(9, seed) for seed in range(3)]


class TwoCollections(ClickModule):
    """User and items in collections of their own, with an optimizer each."""

    def __init__(self, *, read_items: bool = True, cut_items: bool = False) -> None:
        super().__init__(SparseOptimizerSpec(name="sgd", lr=0.5), tables=TABLES[:1])
        self.items = EmbeddingBagCollection(TABLES[1:], optimizer=SparseOptimizerSpec(name="adagrad", lr=0.1))
        self.read_items, self.cut_items = read_items, cut_items

    def logits(self, batch: Batch) -> Tensor:
        users = self.embeddings.start(batch.sparse).wait()
        items = torch.zeros(batch.batch_size, 8)
        if self.read_items:
            items = self.items.start(self.part(batch).sparse).wait()
            items = torch.cat((items, items.new_zeros(batch.batch_size - items.shape[0], 8)))
        result: Tensor = self.linear(torch.cat((batch.dense, users, items), dim=1)).squeeze(1)
        return result

    def part(self, batch: Batch) -> Batch:
        return STEPS[0].part(0, 1) if self.cut_items and dist.get_rank() == 1 else batch

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return functional.binary_cross_entropy_with_logits(self.logits(batch), batch.labels)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.logits(batch)

    def configure_optimizers(self) -> Any:
        groups = [self.embeddings.sparse_parameter_group(), {**self.items.sparse_parameter_group(), "name": "items"}]
        return torch.optim.SGD([{"params": self.dense_parameters(), "name": "dense"}, *groups], lr=0.1)


def loader(splits: Sequence[int]) -> Batches:
    rank = dist.get_rank()
    return Batches([step.part(sum(splits[:rank]), sum(splits[: rank + 1])) for step in STEPS])


def tables(module: TwoCollections) -> list[Tensor]:
    return [module.embeddings.full_weight("user"), module.items.full_weight("items"), *module.dense_parameters()]


def train_both(splits: Sequence[int], read_items: bool) -> list[Tensor]:
    module = TwoCollections(read_items=read_items)
    trainer(NeoStrategy(sharding="row_wise", seed=2)).fit(module, loader(splits))
    return [value.detach() for value in tables(module)]


@pytest.mark.parametrize("read_items", [True, False])
def test_two_collections_train_like_one_rank(worker_pool: WorkerPool, read_items: bool) -> None:
    (alone,) = worker_pool.run(1, train_both, (9,), read_items)
    for found in worker_pool.run(2, train_both, (6, 3), read_items):
        for value, expected in zip(found, alone, strict=True):
            torch.testing.assert_close(value, expected, rtol=0, atol=1e-6)


def train_cut() -> None:
    trainer(NeoStrategy()).fit(TwoCollections(cut_items=True), loader((6, 3)))


def test_collections_that_read_different_batches_are_refused(worker_pool: WorkerPool) -> None:
    with pytest.raises(UnsupportedError, match=r"batches of different sizes \(\[\(6, 3\), \(6, 1\)\]\)"):
        worker_pool.run(2, train_cut)


def validate_then_train() -> tuple[bool, bool]:
    """Return whether validation kept the tables, and whether training changed them."""
    module = TwoCollections()
    trainer(NeoStrategy(seed=2)).validate(module, loader((5, 4)), verbose=False)
    before = [value.detach().clone() for value in tables(module)]
    trainer(NeoStrategy(seed=2)).validate(module, loader((5, 4)), verbose=False)
    kept = all(torch.equal(old, new) for old, new in zip(before, tables(module), strict=True))
    trainer(NeoStrategy(seed=9)).fit(module, loader((5, 4)))
    moved = [float((new - old).abs().max()) for old, new in zip(before, tables(module), strict=True)]
    return kept, all(0 < distance < 2 for distance in moved)


def test_a_sharded_module_keeps_its_tables_from_trainer_to_trainer(worker_pool: WorkerPool) -> None:
    assert worker_pool.run(2, validate_then_train) == [(True, True)] * 2
