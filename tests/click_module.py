"""A small LightningModule with sharded tables and its data, for tests that train it on several ranks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from neo.data.batch import Batch, SparseFeatures
from neo.optim.spec import SparseOptimizerSpec
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.strategy.neo_strategy import NeoStrategy
from neo.tables.spec import Pooling, TableSpec

TABLES = (
    TableSpec("user", 7, 4, ("user",)),
    TableSpec("items", 10, 8, ("items",), Pooling.MEAN),
)


@dataclass(frozen=True)
class Samples:
    """A global batch: one entry per sample."""

    dense: Tensor
    user: list[list[int]]
    items: list[list[int]]
    labels: Tensor

    def part(self, begin: int, end: int) -> Batch:
        """Return the samples ``[begin, end)`` as one rank's batch."""
        bags = self.user[begin:end] + self.items[begin:end]
        lengths = torch.tensor([len(bag) for bag in bags], dtype=torch.int64)
        values = torch.tensor([i for bag in bags for i in bag], dtype=torch.int64)
        sparse = SparseFeatures(("user", "items"), lengths, values)
        return Batch(self.dense[begin:end], sparse, self.labels[begin:end])


def samples(size: int, seed: int) -> Samples:
    """Return random samples; some bags are empty."""
    generator = torch.Generator().manual_seed(seed)

    def bags(rows: int, most: int) -> list[list[int]]:
        lengths = torch.randint(0, most + 1, (size,), generator=generator).tolist()
        return [torch.randint(0, rows, (length,), generator=generator).tolist() for length in lengths]

    dense = torch.randn(size, 3, generator=generator)
    user, items = bags(7, 1), bags(10, 4)
    labels = torch.randint(0, 2, (size,), generator=generator).float()
    return Samples(dense, user, items, labels)


class Batches:
    """A loader: the given batches in every epoch."""

    def __init__(self, batches: Sequence[Any]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)


class ClickModule(pl.LightningModule):
    """One linear layer over dense features and pooled rows."""

    def __init__(
        self, sparse: SparseOptimizerSpec, *, dense_lr: float = 0.1, tables: Sequence[TableSpec] = TABLES
    ) -> None:
        super().__init__()
        self.embeddings = EmbeddingBagCollection(tables, optimizer=sparse)
        self.linear = nn.Linear(15, 1)
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for parameter in self.linear.parameters():
                parameter.normal_(0.0, 0.3, generator=generator)
        self.dense_lr = dense_lr
        self.seen: list[tuple[float, int]] = []

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        pending = self.embeddings.start(batch.sparse)
        inputs = torch.cat((batch.dense, pending.wait()), dim=1)
        loss = functional.binary_cross_entropy_with_logits(self.linear(inputs).squeeze(1), batch.labels)
        self.seen.append((float(loss), batch.batch_size))
        return loss

    def dense_parameters(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def configure_optimizers(self) -> Any:
        groups = [{"params": self.dense_parameters(), "name": "dense"}, self.embeddings.sparse_parameter_group()]
        return torch.optim.SGD(groups, lr=self.dense_lr)


@dataclass
class Trained:
    """What a rank holds after training."""

    tables: dict[str, Tensor]
    dense: dict[str, Tensor]
    seen: list[tuple[float, int]] = field(default_factory=list)


def trainer(strategy: NeoStrategy, **options: Any) -> pl.Trainer:
    """Return a Trainer for the ranks of the test's group, without anything that writes files."""
    quiet: dict[str, Any] = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "max_epochs": 1,
    }
    return pl.Trainer(accelerator="cpu", devices=dist.get_world_size(), strategy=strategy, **(quiet | options))


def fit(module: ClickModule, strategy: NeoStrategy, loader: Any, **options: Any) -> Trained:
    """Train ``module`` and gather its tables."""
    trainer(strategy, **options).fit(module, loader)
    tables = {table.name: module.embeddings.full_weight(table.name) for table in module.embeddings.tables}
    dense = {name: value.detach().clone() for name, value in module.linear.named_parameters()}
    return Trained(tables, dense, module.seen)
