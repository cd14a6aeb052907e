"""A LightningModule of your own with sharded tables: ``python own_lightning_module.py``, or under ``torchrun``."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from neo.data.batch import SparseFeatures
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.strategy.neo_strategy import NeoStrategy
from neo.strategy.quiet import silence_lightning
from neo.tables.spec import TableSpec

Sample = tuple[list[int], list[int], float]  # ids of "user", ids of "items", label


class Clicks(Dataset[Sample]):
    def __len__(self) -> int:
        return 4_000

    def __getitem__(self, index: int) -> Sample:
        user, first = index % 50, index * 7 % 100
        return [user], [first, (first + index) % 100], float((user + first) % 3 == 0)


def collate(samples: list[Sample]) -> tuple[SparseFeatures, Tensor]:
    bags = [sample[0] for sample in samples] + [sample[1] for sample in samples]  # feature by feature
    lengths = torch.tensor([len(bag) for bag in bags])
    values = torch.tensor([i for bag in bags for i in bag])
    return SparseFeatures(("user", "items"), lengths, values), torch.tensor([sample[2] for sample in samples])


class ClickModel(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        tables = [TableSpec("user", 50, 8, ("user",)), TableSpec("items", 100, 8, ("items",))]
        self.embeddings = EmbeddingBagCollection(tables)
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch: tuple[SparseFeatures, Tensor], batch_idx: int) -> Tensor:
        sparse, labels = batch
        logits = self.net(self.embeddings(sparse)).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)  # a mean over the local samples
        self.log("loss", loss, prog_bar=True, batch_size=labels.numel())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam([{"params": self.parameters()}, self.embeddings.sparse_parameter_group()], lr=1e-3)


if __name__ == "__main__":
    pl.seed_everything(0, verbose=False)  # the dense part; tables and sampling have the strategy's seed
    silence_lightning()  # hints and advertisements only
    strategy = NeoStrategy(sharding="auto")
    options: dict[str, Any] = {"enable_checkpointing": False, "enable_model_summary": False, "logger": False}
    trainer = pl.Trainer(accelerator="cpu", devices=2, strategy=strategy, max_epochs=2, **options)
    trainer.fit(ClickModel(), DataLoader(Clicks(), batch_size=64, shuffle=True, collate_fn=collate))
    trainer.print(f"trained on {trainer.world_size} ranks, loss {float(trainer.callback_metrics['loss']):.4f}")
