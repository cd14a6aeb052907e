"""A module that drives its own steps: exact like the automatic loop, or refused with the reason."""

from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.utilities.types import STEP_OUTPUT

from click_module import Batches, ClickModule, samples, trainer
from neo.data.batch import Batch
from neo.errors import UnsupportedError
from neo.optim.spec import SparseOptimizerSpec
from neo.strategy.neo_strategy import NeoStrategy
from worker_pool import WorkerPool

SGD = SparseOptimizerSpec(name="sgd", lr=0.5)
STEPS = [samples(8, seed) for seed in range(3)]


class Validating(ClickModule):
    """Has a validation step, which shards it without training it."""

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.embeddings(batch.sparse)


class Manual(pl.LightningModule):
    """Calls backward and step by itself; ``how`` is the mistake that it makes."""

    def __init__(self, how: str = "") -> None:
        super().__init__()
        self.module = Validating(SGD)
        self.automatic_optimization = False
        self._how = how

    def training_step(self, batch: Batch, batch_idx: int) -> STEP_OUTPUT:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.module.training_step(batch, batch_idx))
        if self._how == "accumulate":
            self.manual_backward(self.module.training_step(batch, batch_idx))
        if self._how == "clip":
            self.clip_gradients(optimizer, gradient_clip_val=1e-9, gradient_clip_algorithm="norm")
        optimizer.step()
        return None

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.module.validation_step(batch, batch_idx)

    def configure_optimizers(self) -> Any:
        return self.module.configure_optimizers()


def train(manual: bool) -> list[torch.Tensor]:
    wrapper = Manual()
    module = wrapper.module
    # The plan keys differ by the wrapper's attribute, and with them the initial rows: start from zeros.
    loader = Batches([step.part(0, 8) for step in STEPS])
    trained: pl.LightningModule = wrapper if manual else module
    running = trainer(NeoStrategy(seed=3))
    running.validate(trained, loader, verbose=False)
    for index in range(len(module.embeddings.tables)):
        for _, weight, _ in module.embeddings.engine.local_shards(index):
            weight.zero_()
    trainer(NeoStrategy(seed=3)).fit(trained, loader)
    tables = [module.embeddings.full_weight(table.name) for table in module.embeddings.tables]
    return [*tables, *(value.detach().clone() for value in module.linear.parameters())]


def fail(how: str) -> None:
    trainer(NeoStrategy(seed=3)).fit(Manual(how), Batches([step.part(0, 8) for step in STEPS]))


def test_manual_steps_train_like_automatic_ones(worker_pool: WorkerPool) -> None:
    (manual,), (automatic,) = (worker_pool.run(1, train, flag) for flag in (True, False))
    for value, expected in zip(manual, automatic, strict=True):
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("accumulate", "two backwards for the collection 'module.embeddings' without an optimizer step between them"),
        ("clip", "clip_gradients with 1e-09 is refused: the tables are updated during the backward, before a norm"),
    ],
)
def test_accumulating_and_clipping_by_hand_are_refused(worker_pool: WorkerPool, how: str, text: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        worker_pool.run(1, fail, how)
    assert text in str(caught.value)
