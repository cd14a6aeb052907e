"""Encoding of file rows, vectorised: dense transforms, labels, and ids to rows of their tables.

Shapes: F sparse features, B samples, D dense features, N ids in all, n ids of one feature.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from neo.data.columns import (
    Bags,
    Kind,
    Place,
    check_float32,
    to_bags,
    to_finite,
    to_hashes,
    to_integers,
    to_labels,
    written_id,
)
from neo.data.hashing import HashIndex
from neo.data.reader import ArrowRows, Positions, Samples
from neo.data.schema import DataSchema, SparseColumn
from neo.data.spec import DataSpec, DenseTransform, Encoding, OutOfRange
from neo.errors import DataError

MISSING_ROW = 0
UNSEEN_ROW = 1
FIRST_KNOWN_ROW = 2
SCALE_DENSE = "scale the column, or use data.dense_transform=log1p"


class Source(Protocol):
    """What an encoder wants of the reader of its rows."""

    def check(self, rows: ArrowRows) -> ArrowRows:
        """Return rows in the form that the format promises; the values that reading does not look at are checked.

        Raises:
            DataError: A value is not what the format promises; names its place.
        """
        ...

    def place(self, rows: ArrowRows, position: int) -> str:
        """Say where a row comes from."""
        ...


class ArrowEncoder:
    """Encodes rows of an Arrow table.

    Args:
        data: Columns and transforms.
        schema: What was learned.
        reader: Where the rows come from.
        separator: What separates the elements of a list that is written as text.
    """

    def __init__(self, data: DataSpec, schema: DataSchema, *, reader: Source, separator: str | None) -> None:
        self._data = data
        self._schema = schema
        self._reader = reader
        self._separator = separator
        self._lists = frozenset(data.lists)
        self._indexes = {
            column.name: HashIndex(schema.known_hashes(column))
            for column in schema.sparse
            if column.encoding is Encoding.VOCABULARY
        }

    def encode(self, rows: ArrowRows) -> Samples:
        """Return the samples of ``rows``.

        Raises:
            DataError: A value is not what the configuration says; names file, place, column and value.
        """
        count = len(rows)

        def place(position: int) -> str:
            return self._reader.place(rows, position)

        rows = self._reader.check(rows)

        labels = self._labels(rows, place)
        values, weights, lengths = [], [], []
        ones = np.ones(count, dtype=np.int64)
        for column in self._schema.sparse:
            array = rows.column(column.name)
            is_list = column.name in self._lists
            bags = to_bags(array, column.name, place, self._separator) if is_list else Bags(ones, array)
            lengths.append(bags.lengths)
            values.append(self._rows_of(bags, column, place))
            weights.append(self._weights_of(rows, bags, column, place))
        return Samples(
            dense=self._dense(rows, place),
            labels=labels,
            num_features=len(self._schema.sparse),
            lengths=np.stack(lengths) if self._lists else None,
            values=np.concatenate(values) if values else np.empty(0, dtype=np.int64),
            weights=_join_weights(values, weights),
        )

    def _labels(self, rows: ArrowRows, place: Place) -> NDArray[np.float32]:
        """Return the labels; 0 for all where none are read."""
        if self._data.label is None:
            return np.zeros(len(rows), dtype=np.float32)
        return to_labels(rows.column(self._data.label), self._data.label, place)

    def _dense(self, rows: ArrowRows, place: Place) -> NDArray[np.float32]:
        columns = np.empty((len(self._schema.dense), len(rows)), dtype=np.float64)
        for index, column in enumerate(self._schema.dense):
            columns[index] = to_finite(rows.column(column.name), column.name, place)
        if self._data.dense_transform is DenseTransform.LOG1P:
            columns = np.log1p(np.maximum(columns, 0.0))
        elif self._data.dense_transform is DenseTransform.STANDARDIZE:
            columns -= np.array([[column.mean] for column in self._schema.dense]).reshape(-1, 1)
            columns /= np.array([[column.deviation] for column in self._schema.dense]).reshape(-1, 1)
        with np.errstate(over="ignore"):  # Told below, with its place.
            dense = np.ascontiguousarray(columns.T, dtype=np.float32)
        if not np.isfinite(dense).all():
            self._check_range(dense, rows, place)
            dense[np.isnan(dense)] = 0.0
        return dense

    def _check_range(self, dense: NDArray[np.float32], rows: ArrowRows, place: Place) -> None:
        """Refuse a value of the file that the transform left beyond float32."""
        for index, column in enumerate(self._schema.dense):
            given = to_finite(rows.column(column.name), column.name, place)
            check_float32(given, column.name, place, SCALE_DENSE, stored=dense[:, index])

    def _rows_of(self, bags: Bags, column: SparseColumn, place: Place) -> Positions:
        """Return ``[n]`` rows of a column's ids."""

        def place_of(element: int) -> str:
            return place(bags.row(element))

        if column.encoding is Encoding.IDENTITY:
            return self._identity(bags, column, place_of)
        hashes, missing = to_hashes(bags.elements, column.name, place_of)
        if column.encoding is Encoding.HASH:
            found = (hashes % np.uint64(column.num_embeddings - 1)).astype(np.int64)
            found += 1
        else:
            found = self._indexes[column.name].find(hashes)
            found += FIRST_KNOWN_ROW
            found[found == FIRST_KNOWN_ROW - 1] = UNSEEN_ROW
        if missing is not None:
            found[missing] = MISSING_ROW
        return found

    def _identity(self, bags: Bags, column: SparseColumn, place: Place) -> Positions:
        ids, missing = to_integers(bags.elements, column.name, place)
        last = column.num_embeddings - 1
        outside = (ids < 0) | (ids >= last)
        if missing is not None:
            outside &= ~missing
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            if self._data.out_of_range is OutOfRange.ERROR:
                value = written_id(bags.elements, ids, at)
                raise DataError(
                    f"{place(at)}: column '{column.name}': id {value} is outside its table's rows "
                    f"[0, {last - 1}]; give it more with model.num_embeddings, or write data.out_of_range=clamp_zero"
                )
            ids = np.where(ids == last, -1, ids)  # the row of a missing id is outside for a given id
        if missing is not None:
            ids = np.where(missing, last, ids)
        return ids

    def _weights_of(
        self, rows: ArrowRows, bags: Bags, column: SparseColumn, place: Place
    ) -> NDArray[np.float32] | None:
        if column.weights is None:
            return None
        name = column.weights
        given = to_bags(rows.column(name), name, place, self._separator)
        unequal = np.flatnonzero(given.lengths != bags.lengths)
        if unequal.size:
            at = int(unequal[0])
            raise DataError(
                f"{place(at)}: column '{name}' has {given.lengths[at]} weights for "
                f"{bags.lengths[at]} ids of column '{column.name}'"
            )

        def place_of(element: int) -> str:
            return place(bags.row(element))

        weights = to_finite(given.elements, name, place_of)
        check_float32(weights, name, place_of, "scale the weights")
        return np.where(np.isnan(weights), 1.0, weights).astype(np.float32)


def _join_weights(values: list[Positions], weights: list[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    if all(given is None for given in weights):
        return None
    full = [
        np.ones(ids.size, dtype=np.float32) if given is None else given
        for ids, given in zip(values, weights, strict=True)
    ]
    return np.concatenate(full)


def check_kind(column: SparseColumn, kind: Kind | None, *, where: str) -> None:
    """Refuse ids of another kind than the training data's, which would all be unknown.

    Raises:
        DataError: The kinds differ.
    """
    if column.kind is not None and kind is not None and column.kind is not kind:
        raise DataError(f"{where}: column '{column.name}' holds {kind}, but {column.kind} in the training data")
