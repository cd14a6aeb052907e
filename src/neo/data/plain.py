"""Columns as plain numpy arrays, torch-free: selecting rows from them costs a fraction of what Arrow's arrays cost.

Shapes: n rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from neo.data.columns import to_hashes
from neo.data.hashing import Hashes

MISSING_ROW = 0


@dataclass(frozen=True)
class PlainColumn:
    """A column of numbers.

    Attributes:
        values: ``[n]``; anything where a value is missing.
        missing: ``[n]`` flags, None if no value is missing.
        is_rows: Whether the values are rows of a table already, int64 and none missing.
    """

    values: NDArray[Any]
    missing: NDArray[np.bool_] | None = None
    is_rows: bool = False

    def take(self, positions: NDArray[np.int64]) -> "PlainColumn":
        """Return the rows at these positions, in this order."""
        missing = None if self.missing is None else self.missing.take(positions)
        return PlainColumn(self.values.take(positions), missing, self.is_rows)

    def slice(self, start: int, stop: int) -> "PlainColumn":
        """Return a range of the rows, without a copy."""
        missing = None if self.missing is None else self.missing[start:stop]
        return replace(self, values=self.values[start:stop], missing=missing)

    def append(self, more: Sequence["PlainColumn"]) -> "PlainColumn":
        """Return these rows followed by ``more``; numbers become as wide as the widest of them."""
        parts = [self, *more]
        missing = None
        if any(part.missing is not None for part in parts):
            flags = [np.zeros(part.values.size, np.bool_) if part.missing is None else part.missing for part in parts]
            missing = np.concatenate(flags)
        return replace(self, values=np.concatenate([part.values for part in parts]), missing=missing)

    def arrow(self) -> Any:
        """Return the column as an Arrow array."""
        return pa.array(self.values, mask=self.missing)


def is_plain_number(kind: Any) -> bool:
    """Whether a column of labels or dense values of this Arrow type can be a plain column."""
    return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))


def is_plain_id(kind: Any) -> bool:
    """Whether a column of ids of this Arrow type can be a plain column: int64 holds all of them."""
    return bool(pa.types.is_integer(kind) and kind != pa.uint64())


def to_plain(array: Any) -> PlainColumn:
    """Return an Arrow array of a plain type as a plain column, without a copy of its values."""
    valid, content = array.buffers()
    start = array.offset * (array.type.bit_width // 8)
    values = np.frombuffer(content, dtype=array.type.to_pandas_dtype(), count=len(array), offset=start)
    if array.null_count == 0:
        return PlainColumn(values)
    bits = np.unpackbits(np.frombuffer(valid, dtype=np.uint8), bitorder="little", count=array.offset + len(array))
    return PlainColumn(values, bits[array.offset :] == 0)


def split_columns(table: Any, plain: frozenset[str]) -> tuple[Any, Mapping[str, PlainColumn]]:
    """Take the plain columns out of an Arrow table of one chunk."""
    columns = {name: to_plain(table.column(name).chunk(0)) for name in table.column_names if name in plain}
    return table.drop_columns(list(columns)) if columns else table, columns


class TextRows:
    """Rows of texts that come in dictionaries: a text that occurs often is hashed and looked up once per dictionary.

    Args:
        find: Returns ``[n]`` rows of ``[n]`` hashes.
    """

    def __init__(self, find: Callable[[Hashes], NDArray[np.int64]]) -> None:
        self._find = find
        self._dictionary: Any = None
        self._known: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def of(self, array: Any) -> PlainColumn:
        """Return the rows of an Arrow array of texts, in a dictionary or not."""
        if not pa.types.is_dictionary(array.type):
            return PlainColumn(self._rows(array), is_rows=True)
        if self._dictionary is None or not array.dictionary.equals(self._dictionary):
            self._dictionary = array.dictionary
            self._known = np.append(self._rows(array.dictionary), MISSING_ROW)
        codes = to_plain(array.indices)
        if codes.missing is None:
            return PlainColumn(self._known.take(codes.values), is_rows=True)
        return PlainColumn(self._known.take(np.where(codes.missing, self._known.size - 1, codes.values)), is_rows=True)

    def _rows(self, texts: Any) -> NDArray[np.int64]:
        hashes, missing = to_hashes(texts, "", lambda position: "")
        rows = self._find(hashes)
        if missing is not None:
            rows[missing] = MISSING_ROW
        return rows
