"""The dense reference: embedding tables on one process in float64, written independently of every backend.

Shapes: F features, B samples, N ids, D columns. It shares no code with ``neo.ops`` or ``neo.optim``: what the
optimizers do is written out again here, so that a mistake in one of them shows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from neo.optim.spec import SparseOptimizerSpec
from neo.tables.spec import Pooling, TableSpec

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ReferenceInput:
    """One global batch in the combined format, as NumPy arrays.

    Attributes:
        keys: Feature names.
        lengths: ``[F, B]`` ids per bag.
        values: ``[N]`` ids, bags in feature-major order.
        weights: ``[N]`` weights of the ids, or None.
    """

    keys: tuple[str, ...]
    lengths: Ints
    values: Ints
    weights: Floats | None = None

    def bags(self, feature: str) -> tuple[Ints, Ints, Floats | None]:
        """Return the ids of one feature, the sample of each, and their weights."""
        row = self.keys.index(feature)
        starts = np.concatenate([[0], np.cumsum(self.lengths.sum(axis=1))])
        part = slice(int(starts[row]), int(starts[row + 1]))
        samples = np.repeat(np.arange(self.lengths.shape[1]), self.lengths[row])
        return self.values[part], samples, None if self.weights is None else self.weights[part]


@dataclass
class _Row:
    """State of one block of columns of a table."""

    first: Floats
    second: Floats


@dataclass
class DenseReference:
    """Unsharded tables with their optimizer.

    Args:
        tables: The tables, in output order.
        weights: Initial weights per table name, ``[rows, D]``; copied.
        optimizer: The sparse optimizer.
        column_blocks: Per table name, the column ranges that keep a row-wise state of their own (the ``per_shard``
            semantics of column-wise sharding); absent means one block, the exact semantics.
    """

    tables: Sequence[TableSpec]
    weights: Mapping[str, Floats]
    optimizer: SparseOptimizerSpec
    column_blocks: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.weights = {name: np.array(value, dtype=np.float64) for name, value in self.weights.items()}
        self.steps = 0
        self._states: dict[tuple[str, int, int], _Row] = {}
        for table in self.tables:
            for begin, end in self._blocks(table):
                shape = (table.num_embeddings, 1 if self.optimizer.is_rowwise else end - begin)
                start = self.optimizer.initial_accumulator if self.optimizer.name != "adam" else 0.0
                self._states[table.name, begin, end] = _Row(np.full(shape, start), np.zeros(shape))

    def forward(self, batch: ReferenceInput) -> Floats:
        """Return the pooled outputs ``[B, sum of D over outputs]``, table by table, feature by feature."""
        outputs = []
        for table in self.tables:
            for feature in table.feature_names:
                ids, samples, factors = self._factors(table, feature, batch)
                pooled = np.zeros((batch.lengths.shape[1], table.embedding_dim))
                np.add.at(pooled, samples, self.weights[table.name][ids] * factors[:, None])
                outputs.append(pooled)
        return np.concatenate(outputs, axis=1)

    def backward(self, batch: ReferenceInput, gradient: Floats) -> None:
        """Apply one exact update for ``gradient`` ``[B, sum of D]``, the gradient of the pooled outputs."""
        self.steps += 1
        column = 0
        for table in self.tables:
            total = np.zeros_like(self.weights[table.name])
            touched = np.zeros(table.num_embeddings, dtype=bool)
            for feature in table.feature_names:
                ids, samples, factors = self._factors(table, feature, batch)
                part = gradient[:, column : column + table.embedding_dim]
                column += table.embedding_dim
                np.add.at(total, ids, part[samples] * factors[:, None])
                touched[ids] = True
            for begin, end in self._blocks(table):
                self._update(table.name, np.flatnonzero(touched), total[:, begin:end], begin, end)

    def weights_gradient(self, batch: ReferenceInput, gradient: Floats) -> Floats:
        """Return the gradient ``[N]`` of the per-sample weights of all features, before any update."""
        assert batch.weights is not None
        result = np.zeros_like(batch.weights)
        starts = np.concatenate([[0], np.cumsum(batch.lengths.sum(axis=1))])
        column = 0
        for table in self.tables:
            for feature in table.feature_names:
                part = gradient[:, column : column + table.embedding_dim]
                column += table.embedding_dim
                if not table.weighted:
                    continue
                ids, samples, weights = batch.bags(feature)
                assert weights is not None
                rows = self.weights[table.name][ids]
                dots = (part[samples] * rows).sum(axis=1)
                if table.pooling is Pooling.MEAN:
                    sums = np.zeros(batch.lengths.shape[1])
                    np.add.at(sums, samples, weights)
                    weighted_dots = np.zeros_like(sums)
                    np.add.at(weighted_dots, samples, weights * dots)
                    safe = np.where(sums == 0, 1.0, sums)
                    dots = np.where(
                        sums[samples] == 0, 0.0, dots / safe[samples] - weighted_dots[samples] / safe[samples] ** 2
                    )
                row = batch.keys.index(feature)
                result[int(starts[row]) : int(starts[row + 1])] += dots
        return result

    def state(self, table: str) -> Floats:
        """Return the (first) optimizer state of a table that has one block of columns."""
        ((_, row),) = [item for item in self._states.items() if item[0][0] == table]
        return row.first

    def _blocks(self, table: TableSpec) -> Sequence[tuple[int, int]]:
        return self.column_blocks.get(table.name, [(0, table.embedding_dim)])

    def _factors(self, table: TableSpec, feature: str, batch: ReferenceInput) -> tuple[Ints, Ints, Floats]:
        """Return ids, their samples, and the factor with which each id's row enters its bag."""
        ids, samples, weights = batch.bags(feature)
        factors = np.ones(len(ids)) if not table.weighted or weights is None else weights.astype(np.float64)
        if table.pooling is Pooling.MEAN:
            sums = np.zeros(batch.lengths.shape[1])
            np.add.at(sums, samples, factors)
            safe = np.where(sums == 0, 1.0, sums)
            factors = np.where(sums[samples] == 0, 0.0, factors / safe[samples])
        return ids, samples, factors

    def _update(self, name: str, rows: Ints, gradient: Floats, begin: int, end: int) -> None:
        spec, state = self.optimizer, self._states[name, begin, end]
        weight, grad = self.weights[name][:, begin:end], gradient[rows]
        if spec.name == "sgd":
            weight[rows] -= spec.lr * grad
        elif spec.name in ("adagrad", "rowwise_adagrad"):
            squares = grad**2 if spec.name == "adagrad" else (grad**2).mean(axis=1, keepdims=True)
            state.first[rows] += squares
            root = np.sqrt(state.first[rows]) + spec.eps
            # A row whose gradients cancel stays, also with eps = 0.
            weight[rows] -= spec.lr * np.divide(grad, root, out=np.zeros_like(grad), where=root > 0)
        elif spec.name == "adam":
            state.first[rows] = spec.beta1 * state.first[rows] + (1 - spec.beta1) * grad
            state.second[rows] = spec.beta2 * state.second[rows] + (1 - spec.beta2) * grad**2
            mean = state.first[rows] / (1 - spec.beta1**self.steps)
            variance = state.second[rows] / (1 - spec.beta2**self.steps)
            weight[rows] -= spec.lr * mean / (np.sqrt(variance) + spec.eps)
        else:
            raise NotImplementedError(f"the reference does not know the optimizer '{spec.name}'")
