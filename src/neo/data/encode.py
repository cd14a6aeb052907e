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
from neo.data.hashing import Hashes, HashIndex, hash_integers
from neo.data.integer_index import IntegerIndex
from neo.data.plain import MISSING_ROW
from neo.data.reader import ArrowRows, Positions, Samples
from neo.data.schema import DataSchema, SparseColumn
from neo.data.spec import DataSpec, DenseTransform, Encoding, OutOfRange
from neo.errors import DataError

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
        self._integer_indexes = {column.name: self._integer_index(column) for column in schema.sparse}

    def _integer_index(self, column: SparseColumn) -> IntegerIndex | None:
        if column.encoding is not Encoding.VOCABULARY or column.kind is not Kind.INTEGER:
            return None
        return IntegerIndex.of(self._schema.known_ids(column), first=FIRST_KNOWN_ROW, absent=UNSEEN_ROW)

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
        num_features = len(self._schema.sparse)
        if not self._lists:
            single = np.empty((num_features, count), dtype=np.int64)
            for found, column in zip(single, self._schema.sparse, strict=True):
                self._single_rows(rows, column, place, found)
            return Samples(self._dense(rows, place), labels, num_features, None, single.reshape(-1), None)
        values, weights, lengths = [], [], []
        ones = np.ones(count, dtype=np.int64)
        for column in self._schema.sparse:
            if column.name in self._lists:
                bags = to_bags(rows.column(column.name), column.name, place, self._separator)
                values.append(self._rows_of(bags, column, place))
                weights.append(self._weights_of(rows, bags, column, place))
                lengths.append(bags.lengths)
            else:
                values.append(np.empty(count, dtype=np.int64))
                self._single_rows(rows, column, place, values[-1])
                weights.append(None)
                lengths.append(ones)
        return Samples(
            dense=self._dense(rows, place),
            labels=labels,
            num_features=num_features,
            lengths=np.stack(lengths),
            values=np.concatenate(values),
            weights=_join_weights(values, weights),
        )

    def _labels(self, rows: ArrowRows, place: Place) -> NDArray[np.float32]:
        label = self._data.label
        if label is None:
            return np.zeros(len(rows), dtype=np.float32)
        if label not in rows.plain:
            return to_labels(rows.column(label), label, place)
        plain = rows.plain[label]
        with np.errstate(over="ignore"):  # What becomes infinite is no label either.
            labels = plain.values.astype(np.float64).astype(np.float32)
        if plain.missing is not None:
            labels[plain.missing] = np.nan
        return labels

    def _single_rows(self, rows: ArrowRows, column: SparseColumn, place: Place, found: Positions) -> None:
        """Write ``[B]`` rows of a column with one id per sample into ``found``."""
        plain = rows.plain.get(column.name)
        if plain is None:
            bags = Bags(np.ones(len(rows), dtype=np.int64), rows.column(column.name))
            found[:] = self._rows_of(bags, column, place)
            return
        found[:] = plain.values
        if plain.is_rows:
            return
        if column.encoding is not Encoding.IDENTITY:
            found[:] = self._rows_of_integers(found, column)
            if plain.missing is not None:
                found[plain.missing] = MISSING_ROW
            return
        last = column.num_embeddings - 1
        if plain.missing is not None:
            found[plain.missing] = 0
        if found.size and found.view(np.uint64).max() >= last:  # a negative id is a huge one without its sign
            found[:] = self._identity(Bags(np.ones(found.size, dtype=np.int64), plain.arrow()), column, place)
        elif plain.missing is not None:
            found[plain.missing] = last

    def _rows_of_integers(self, ids: NDArray[np.int64], column: SparseColumn) -> Positions:
        """Return ``[n]`` rows of whole numbers under ``hash`` or ``vocabulary``."""
        index = self._integer_indexes[column.name]
        if index is not None:
            return index.find(ids)
        return self.rows_of_hashes(column, hash_integers(ids))

    def rows_of_hashes(self, column: SparseColumn, hashes: Hashes) -> Positions:
        """Return ``[n]`` rows of hashed ids, none of them missing."""
        if column.encoding is Encoding.HASH:
            buckets = np.uint64(column.num_embeddings - 1)
            found = (hashes - hashes // buckets * buckets).view(np.int64)  # numpy divides faster than it takes rests
            found += 1
            return found
        found = self._indexes[column.name].find(hashes)
        found += FIRST_KNOWN_ROW
        found[found == FIRST_KNOWN_ROW - 1] = UNSEEN_ROW
        return found

    def _dense(self, rows: ArrowRows, place: Place) -> NDArray[np.float32]:
        """Return ``[B, D]``: one column at a time, so that it stays in the processor's cache."""
        by_column = np.empty((len(self._schema.dense), len(rows)), dtype=np.float32)
        for stored, column in zip(by_column, self._schema.dense, strict=True):
            values, missing = _finite_column(rows, column.name, place)
            if self._data.dense_transform is DenseTransform.LOG1P:
                np.maximum(values, 0.0, out=values)
                np.log1p(values, out=values)
            elif self._data.dense_transform is DenseTransform.STANDARDIZE:
                values -= column.mean
                values /= column.deviation
            with np.errstate(over="ignore"):  # Told below, with its place.
                stored[:] = values
            if missing is not None:
                stored[missing] = 0.0
        if not np.isfinite(by_column).all():
            self._check_range(by_column, rows, place)
        return np.ascontiguousarray(by_column.T)

    def _check_range(self, dense: NDArray[np.float32], rows: ArrowRows, place: Place) -> None:
        """Refuse a value of the file that the transform left beyond float32."""
        for stored, column in zip(dense, self._schema.dense, strict=True):
            given = to_finite(rows.column(column.name), column.name, place)
            check_float32(given, column.name, place, SCALE_DENSE, stored=stored)

    def _rows_of(self, bags: Bags, column: SparseColumn, place: Place) -> Positions:
        """Return ``[n]`` rows of a column's ids."""

        def place_of(element: int) -> str:
            return place(bags.row(element))

        if column.encoding is Encoding.IDENTITY:
            return self._identity(bags, column, place_of)
        hashes, missing = to_hashes(bags.elements, column.name, place_of)
        found = self.rows_of_hashes(column, hashes)
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


def _finite_column(rows: ArrowRows, name: str, place: Place) -> tuple[NDArray[np.float64], NDArray[np.bool_] | None]:
    """Return ``[n]`` numbers, 0 where one is missing, and ``[n]`` flags of those. Raises as ``to_finite`` does."""
    plain = rows.plain.get(name)
    if plain is None:
        values = to_finite(rows.column(name), name, place)
        missing = np.isnan(values)
        return np.where(missing, 0.0, values), missing
    values = plain.values.astype(np.float64)
    if plain.missing is not None:
        values[plain.missing] = 0.0
    if not np.isfinite(values).all():
        to_finite(plain.arrow(), name, place)  # says where
    return values, plain.missing


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
