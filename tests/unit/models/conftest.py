from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import Tensor, nn

from neo.data.batch import SparseFeatures
from neo.models.spec import ModelConfig, tables_of
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.tables.spec import FeatureSpec, TableSpec

MakeEmbeddings = Callable[..., EmbeddingBagCollection]


class PlainEmbeddings(nn.Module):
    """What a model needs of a collection, held in one process: rows from plain tensors."""

    def __init__(self, tables: tuple[TableSpec, ...]) -> None:
        super().__init__()
        self.tables = tables
        self.output_dims = tuple(table.embedding_dim for table in tables)
        generator = torch.Generator().manual_seed(1)
        self.rows = [torch.randn(t.num_embeddings, t.embedding_dim, generator=generator) for t in tables]

    def start(self, sparse: SparseFeatures) -> "PlainEmbeddings":
        """Remember the batch, as posting the exchange would."""
        self.sparse = sparse
        return self

    def wait(self) -> Tensor:
        """Return the pooled rows ``[B, sum of dims]``."""
        lengths = self.sparse.lengths_by_feature
        ids = self.sparse.values.split(lengths.sum(dim=1).tolist())
        pooled = []
        for table, rows in zip(self.tables, self.rows, strict=True):
            position = self.sparse.keys.index(table.feature_names[0])
            feature_ids, counts = ids[position], lengths[position]
            samples = torch.repeat_interleave(torch.arange(counts.numel()), counts)
            pooled.append(torch.zeros(counts.numel(), rows.shape[1]).index_add(0, samples, rows[feature_ids]))
        return torch.cat(pooled, dim=1)


@pytest.fixture
def make_embeddings() -> MakeEmbeddings:
    def make(dim: int = 4, num_features: int = 3, names: str = "abcdef", model: str = "dlrm") -> EmbeddingBagCollection:
        features = [FeatureSpec(names[i], 10 + i) for i in range(num_features)]
        tables = tables_of(ModelConfig(name=model, embedding_dim=dim).to_spec(), features)
        return cast(EmbeddingBagCollection, PlainEmbeddings(tables))

    return make
