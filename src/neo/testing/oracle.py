"""The dense reference: embedding tables on one process in float64, written independently of every backend.

Shapes: F features, B_f bags of feature f (B samples, unless the batch is variable), N ids, D columns. It shares no code
with ``neo.ops``, ``neo.optim.sparse`` or ``neo.sharded``: what they do is written out again here and in
``neo.testing.reference_optimizers``, so that a mistake in one of them shows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from neo.optim.spec import SparseOptimizerSpec
from neo.tables.spec import Pooling, TableSpec
from neo.testing.reference_optimizers import ReferenceOptimizer

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ReferenceInput:
    """One global batch in the combined format, as NumPy arrays.

    Attributes:
        keys: Feature names.
        lengths: Ids per bag: ``[F, B]``, or one array ``[B_f]`` per feature.
        values: ``[N]`` ids, bags in feature-major order.
        weights: ``[N]`` weights of the ids, or None.
    """

    keys: tuple[str, ...]
    lengths: Ints | Sequence[Ints]
    values: Ints
    weights: Floats | None = None

    def lengths_of(self, feature: str) -> Ints:
        """Return the ids per bag ``[B_f]`` of one feature."""
        return np.asarray(self.lengths[self.keys.index(feature)], dtype=np.int64)

    def span(self, feature: str) -> slice:
        """Return where the ids of one feature stand in ``values``."""
        row = self.keys.index(feature)
        counts = [int(np.sum(lengths)) for lengths in self.lengths]
        return slice(sum(counts[:row]), sum(counts[: row + 1]))

    def bags(self, feature: str) -> tuple[Ints, Ints, Floats | None]:
        """Return the ids of one feature, the bag of each, and their weights."""
        part, lengths = self.span(feature), self.lengths_of(feature)
        bags = np.repeat(np.arange(len(lengths)), lengths)
        return self.values[part], bags, None if self.weights is None else self.weights[part]


@dataclass
class DenseReference:
    """Unsharded tables with their optimizer.

    Args:
        tables: The tables, in output order.
        weights: Initial weights per table name, ``[rows, D]``; copied.
        optimizer: The sparse optimizer, or one per table name.
        column_blocks: Per table name, the column ranges that keep a row-wise state of their own (the ``per_shard``
            semantics of column-wise sharding); absent means one block, the exact semantics.
    """

    tables: Sequence[TableSpec]
    weights: Mapping[str, Floats]
    optimizer: SparseOptimizerSpec | Mapping[str, SparseOptimizerSpec]
    column_blocks: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.weights = {name: np.array(value, dtype=np.float64) for name, value in self.weights.items()}
        self.steps = 0
        self._optimizers = {
            (table.name, begin, end): ReferenceOptimizer(self._spec(table), table.num_embeddings, end - begin)
            for table in self.tables
            for begin, end in self._blocks(table)
        }

    def outputs(self, batch: ReferenceInput) -> dict[str, Floats]:
        """Return every output ``[B_f, D]`` by name; of a table without pooling ``[ids, D]``."""
        found = {}
        for table in self.tables:
            for feature in table.feature_names:
                ids, bags, factors = self._factors(table, feature, batch)
                rows = self.weights[table.name][ids] * factors[:, None]
                num_rows = len(ids) if table.pooling is Pooling.NONE else len(batch.lengths_of(feature))
                pooled = np.zeros((num_rows, table.embedding_dim))
                np.add.at(pooled, bags, rows)
                found[table.output_name(feature)] = pooled
        return found

    def forward(self, batch: ReferenceInput) -> Floats:
        """Return the outputs side by side ``[B, sum of D]``, table by table, feature by feature."""
        return np.concatenate(list(self.outputs(batch).values()), axis=1)

    def backward(self, batch: ReferenceInput, gradient: Floats | Mapping[str, Floats]) -> None:
        """Apply one exact update for the gradient of the outputs: side by side, or by name."""
        self.steps += 1
        gradients = self.by_name(gradient)
        for table in self.tables:
            total = np.zeros_like(self.weights[table.name])
            touched = np.zeros(table.num_embeddings, dtype=bool)
            for feature in table.feature_names:
                ids, bags, factors = self._factors(table, feature, batch)
                np.add.at(total, ids, gradients[table.output_name(feature)][bags] * factors[:, None])
                touched[ids] = True
            rows = np.flatnonzero(touched)
            for begin, end in self._blocks(table):
                block = np.ascontiguousarray(self.weights[table.name][:, begin:end])
                self._optimizers[table.name, begin, end].step(block, rows, total[rows, begin:end], self.steps)
                self.weights[table.name][:, begin:end] = block

    def weights_gradient(self, batch: ReferenceInput, gradient: Floats | Mapping[str, Floats]) -> Floats:
        """Return the gradient ``[N]`` of the per-sample weights of all features, before any update."""
        assert batch.weights is not None
        gradients = self.by_name(gradient)
        result = np.zeros_like(batch.weights)
        for table in self.tables:
            for feature in table.feature_names if table.weighted else ():
                ids, bags, weights = batch.bags(feature)
                assert weights is not None
                part = gradients[table.output_name(feature)]
                dots = (part[bags] * self.weights[table.name][ids]).sum(axis=1)
                if table.pooling is Pooling.MEAN:
                    dots = _through_normalisation(dots, weights, bags, len(batch.lengths_of(feature)))
                result[batch.span(feature)] += dots
        return result

    def by_name(self, gradient: Floats | Mapping[str, Floats]) -> Mapping[str, Floats]:
        """Return gradients that stand side by side by the names of their outputs."""
        if isinstance(gradient, Mapping):
            return gradient
        names = [(table.output_name(f), table.embedding_dim) for table in self.tables for f in table.feature_names]
        parts = np.split(gradient, np.cumsum([dim for _, dim in names])[:-1], axis=1)
        return {name: part for (name, _), part in zip(names, parts, strict=True)}

    def states(self, table: str) -> Mapping[str, Floats]:
        """Return the optimizer states of a table that has one block of columns, by name."""
        ((_, optimizer),) = [item for item in self._optimizers.items() if item[0][0] == table]
        return optimizer.states

    def _spec(self, table: TableSpec) -> SparseOptimizerSpec:
        return self.optimizer[table.name] if isinstance(self.optimizer, Mapping) else self.optimizer

    def _blocks(self, table: TableSpec) -> Sequence[tuple[int, int]]:
        return self.column_blocks.get(table.name, [(0, table.embedding_dim)])

    def _factors(self, table: TableSpec, feature: str, batch: ReferenceInput) -> tuple[Ints, Ints, Floats]:
        """Return ids, their output rows, and the factor with which each id's row enters its output."""
        ids, bags, weights = batch.bags(feature)
        if table.pooling is Pooling.NONE:
            return ids, np.arange(len(ids)), np.ones(len(ids))
        factors = np.ones(len(ids)) if not table.weighted or weights is None else weights.astype(np.float64)
        if table.pooling is Pooling.MEAN:
            sums = np.zeros(len(batch.lengths_of(feature)))
            np.add.at(sums, bags, factors)
            safe = np.where(sums == 0, 1.0, sums)
            factors = np.where(sums[bags] == 0, 0.0, factors / safe[bags])
        return ids, bags, factors


def _through_normalisation(dots: Floats, weights: Floats, bags: Ints, num_bags: int) -> Floats:
    """Return the gradient of the weights from that of the weights divided by the sum of their bag."""
    sums, weighted = np.zeros(num_bags), np.zeros(num_bags)
    np.add.at(sums, bags, weights)
    np.add.at(weighted, bags, weights * dots)
    safe = np.where(sums == 0, 1.0, sums)
    return np.where(sums[bags] == 0, 0.0, dots / safe[bags] - weighted[bags] / safe[bags] ** 2)
