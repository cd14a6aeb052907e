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
from neo.data.dense import DenseEncoder
from neo.data.hashing import Hashes, HashIndex, hash_integers
from neo.data.integer_index import IntegerIndex
from neo.data.multi_hot import FixedBags
from neo.data.plain import MISSING_ROW
from neo.data.reader import ArrowRows, Positions, Samples
from neo.data.schema import DataSchema, SparseColumn
from neo.data.spec import DataSpec, Encoding, OutOfRange
from neo.errors import DataError

UNSEEN_ROW = 1
FIRST_KNOWN_ROW = 2


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
        self._dense = DenseEncoder(schema.dense, data.dense_transform)
        self._lists = frozenset(data.lists)
        self._indexes = {
            column.name: HashIndex(schema.known_hashes(column))
            for column in schema.sparse
            if column.encoding is Encoding.VOCABULARY
        }
        self._integer_indexes = {column.name: self._integer_index(column) for column in schema.sparse}

        self._fixed_bags = {column.name: _fixed_bags(column) for column in schema.sparse if column.bag_size > 1}

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
            sizes, ids = self._bags_of(single)
            return Samples(self._dense.encode(rows, place), labels, num_features, sizes, ids, None)
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
            dense=self._dense.encode(rows, place),
            labels=labels,
            num_features=num_features,
            lengths=np.stack(lengths),
            values=np.concatenate(values),
            weights=_join_weights(values, weights),
        )

    def _bags_of(self, single: Positions) -> tuple[Positions | None, Positions]:
        """Return lengths ``[F, B]``, None if all are 1, and values ``[N]`` of ``[F, B]`` given rows."""
        if not self._fixed_bags:
            return None, single.reshape(-1)
        lengths = np.ones(single.shape, dtype=np.int64)
        values = []
        for index, column in enumerate(self._schema.sparse):
            fixed = self._fixed_bags.get(column.name)
            lengths[index] = column.bag_size
            values.append(single[index] if fixed is None else fixed.of(single[index]))
        return lengths, np.concatenate(values)

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


def _fixed_bags(column: SparseColumn) -> FixedBags:
    """Return the bags that a column's ids become; rows of missing and unseen ids are drawn for none of them."""
    first = {Encoding.IDENTITY: 0, Encoding.HASH: 1, Encoding.VOCABULARY: FIRST_KNOWN_ROW}[column.encoding]
    stop = column.num_embeddings - (1 if column.encoding is Encoding.IDENTITY else 0)
    return FixedBags(
        column.name,
        first=first,
        stop=stop,
        num_embeddings=column.num_embeddings,
        pooling_factor=column.bag_size,
    )


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
