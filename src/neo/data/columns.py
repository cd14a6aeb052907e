"""Arrow columns to numpy arrays, vectorised; a value of the wrong kind is named with its place.

Shapes: n rows; N elements of a list column.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from neo.data.hashing import Hashes, hash_integers, hash_texts
from neo.errors import DataError

_MAX_FLOAT32 = float(np.finfo(np.float32).max)
HASHED = pa.binary(8)  # texts of which a reader keeps the hash only; no type that ids of a file may have
Place = Callable[[int], str]


class Kind(StrEnum):
    """What the ids of a column are; whole numbers and texts hash differently, so that both must not be mixed."""

    INTEGER = "whole numbers"
    TEXT = "text"


@dataclass(frozen=True)
class Bags:
    """A list column, taken apart.

    Attributes:
        lengths: ``[n]`` elements of each row; 1 for a row that is null as a whole.
        elements: Arrow array of ``[N]`` elements; null is a missing id.
    """

    lengths: NDArray[np.int64]
    elements: Any

    def row(self, element: int) -> int:
        """Return the row that holds this element."""
        return int(np.searchsorted(np.cumsum(self.lengths), element, side="right"))


def kind_of(column: str, kind: Any, *, where: str) -> Kind | None:
    """Return what ids of this Arrow type are, None for a column without any value.

    Raises:
        DataError: Ids cannot have this type.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_floating(kind):
        return Kind.INTEGER
    if pa.types.is_null(kind):
        return None
    if is_text(kind):
        return Kind.TEXT
    raise DataError(f"{where}: column '{column}' has the type {kind}; ids must be whole numbers or text")


def is_text(kind: Any) -> bool:
    """Whether this Arrow type is a text."""
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def is_list(kind: Any) -> bool:
    """Whether this Arrow type is a list."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def to_floats(array: Any, column: str, place: Place) -> NDArray[np.float64]:
    """Return ``[n]`` float64; what is null is NaN.

    Raises:
        DataError: A text is no number, or the column holds no numbers at all.
    """
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    if is_text(array.type):
        array = _parse(array, pa.float64(), column, place, "a number")
    elif pa.types.is_decimal(array.type) or pa.types.is_null(array.type):
        array = array.cast(pa.float64())
    elif not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        raise DataError(f"{place(0)}: column '{column}' has the type {array.type}, which is no number")
    values: NDArray[np.float64] = array.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    return values


def to_finite(array: Any, column: str, place: Place) -> NDArray[np.float64]:
    """Return ``[n]`` float64; NaN is what is null, and nothing else.

    Raises:
        DataError: As ``to_floats``, or a value is NaN or infinite.
    """
    values = to_floats(array, column, place)
    wrong = ~np.isfinite(values)
    if np.count_nonzero(wrong) > array.null_count:
        if array.null_count:
            wrong &= ~np.asarray(array.is_null().to_numpy(zero_copy_only=False), dtype=bool)
        at = int(np.flatnonzero(wrong)[0])
        fix = "an empty cell or null is a missing value"
        raise DataError(f"{place(at)}: column '{column}': {values[at]} is not finite; {fix}")
    return values


def check_float32(
    values: NDArray[np.float64], column: str, place: Place, fix: str, *, stored: NDArray[np.float32] | None = None
) -> None:
    """Refuse finite numbers that float32 cannot hold.

    Args:
        values: ``[n]`` as the file has them; NaN is missing.
        column: Their column.
        place: Says where a number comes from.
        fix: What can be done.
        stored: ``[n]`` what became of them, if not the numbers themselves.

    Raises:
        DataError: There is one.
    """
    wrong = np.abs(values) > _MAX_FLOAT32 if stored is None else np.isinf(stored)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise DataError(f"{place(at)}: column '{column}': {values[at]} is beyond 3.4e38, the limit of float32; {fix}")


def to_labels(array: Any, column: str, place: Place) -> NDArray[np.float32]:
    """Return ``[n]`` float32 labels; also from ``true`` and ``false`` written as text. Raises as ``to_floats`` does."""
    if is_text(array.type):
        small = pc.ascii_lower(array)
        array = pc.if_else(pc.equal(small, "true"), "1", pc.if_else(pc.equal(small, "false"), "0", small))
    with np.errstate(over="ignore"):  # What becomes infinite is no label either.
        return to_floats(array, column, place).astype(np.float32)


def wrong_label(labels: NDArray[np.float32]) -> tuple[int, str] | None:
    """Return position and fault of the first label that is missing or outside [0, 1], None if there is none."""
    wrong = np.flatnonzero(~((labels >= 0) & (labels <= 1)))
    if wrong.size == 0:
        return None
    at = int(wrong[0])
    return at, "the label is missing" if np.isnan(labels[at]) else f"label {labels[at]} is outside [0, 1]"


def to_bags(array: Any, column: str, place: Place, separator: str | None) -> Bags:
    """Take a list column apart; a text is cut at ``separator`` first.

    A row that is null as a whole is one missing id; an empty list is an empty bag.

    Raises:
        DataError: The column holds no lists.
    """
    if separator is not None and is_text(array.type):
        array = _cut(array, separator)
    if not is_list(array.type):
        raise DataError(f"{place(0)}: column '{column}' has the type {array.type}; data.lists names list columns")
    lengths = pc.list_value_length(array)
    missing = np.asarray(pc.is_null(array).to_numpy(zero_copy_only=False), dtype=bool)
    counts = pc.fill_null(lengths, 1).to_numpy(zero_copy_only=False).astype(np.int64)
    elements = array.flatten()
    if missing.any():
        ends = np.cumsum(counts)
        taken = np.ones(int(ends[-1]), dtype=np.int64)
        taken[ends[missing] - 1] = 0
        source = np.cumsum(taken) - 1
        elements = elements.take(pa.array(source, mask=taken == 0))
    return Bags(counts, elements)


def _cut(array: Any, separator: str) -> Any:
    """Cut texts into lists; an empty text (or field) is an empty list, an empty element is null."""
    lists = pc.split_pattern(pc.fill_null(array, ""), separator)
    parts = lists.flatten()
    parts = pc.if_else(pc.equal(parts, ""), pa.scalar(None, parts.type), parts)
    counts = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    empty = np.asarray(pc.equal(pc.fill_null(array, ""), "").to_numpy(zero_copy_only=False), dtype=bool)
    if empty.any():
        keep = np.repeat(~empty, counts)
        parts = parts.filter(pa.array(keep))
        counts[empty] = 0
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    return pa.LargeListArray.from_arrays(pa.array(offsets), parts)


def to_integers(array: Any, column: str, place: Place) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """Return ``[n]`` int64 and, where some are missing, ``[n]`` flags of those.

    Fractions that are whole (an integer column with gaps becomes one in many tools) count as integers, NaN as missing.

    Raises:
        DataError: A value is no whole number.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if is_text(array.type):
        array = parse_integers(array, column, place)
    if pa.types.is_null(array.type) or pa.types.is_boolean(array.type):
        array = array.cast(pa.int64())
    missing: NDArray[np.bool_] | None = None
    if pa.types.is_floating(array.type):
        floats = array.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        missing = np.isnan(floats)
        floats = np.where(missing, 0.0, floats)
        wrong = np.flatnonzero((floats != np.floor(floats)) | (np.abs(floats) > 2.0**53))
        if wrong.size:
            at = int(wrong[0])
            whole = np.isfinite(floats[at]) and floats[at] == np.floor(floats[at])
            why = "is beyond 2^53, where fractions skip whole numbers" if whole else "is not a whole number"
            raise DataError(f"{place(at)}: column '{column}': {floats[at]} {why}")
        return floats.astype(np.int64), (missing if missing.any() else None)
    if array.null_count:
        missing = np.asarray(array.is_null().to_numpy(zero_copy_only=False), dtype=bool)
        array = array.fill_null(0)
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype == np.uint64:
        values = values.view(np.int64)
    return values.astype(np.int64, copy=False), missing


def written_id(array: Any, ids: NDArray[np.int64], at: int) -> int:
    """Return the id at a position as the file holds it: ids of 64 bits without a sign are kept as int64."""
    return int(ids[at]) % 2**64 if array.type == pa.uint64() else int(ids[at])


def parse_integers(array: Any, column: str, place: Place) -> Any:
    """Convert ``[n]`` texts to an Arrow array of int64; null stays null.

    Raises:
        DataError: A text is no whole number, or one of more than 64 bits.
    """
    integers = _parse(array, pa.int64(), column, place, "a whole number")
    content = array.buffers()[2]
    if content is not None and (np.frombuffer(content, dtype=np.uint8) | 0x20 == ord("x")).any():
        for at, text in enumerate(array.cast(pa.binary()).to_pylist()):  # Arrow would take hexadecimal digits, too
            if text is not None and b"x" in text.lower():
                raise DataError(f"{place(at)}: column '{column}': '{text.decode()}' is not a whole number")
    return integers


def hashed_array(array: Any) -> Any:
    """Return an Arrow array of type ``HASHED`` with the hashes of ``[n]`` texts; null stays null."""
    hashes, missing = to_hashes(array, "", lambda position: "")
    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.FixedSizeBinaryArray.from_buffers(HASHED, hashes.size, [valid, pa.py_buffer(hashes)])


def to_hashes(array: Any, column: str, place: Place) -> tuple[Hashes, NDArray[np.bool_] | None]:
    """Return ``[n]`` hashes and, where some ids are missing, ``[n]`` flags of those. Raises as ``to_integers`` does."""
    if pa.types.is_dictionary(array.type) and not is_text(array.type.value_type):
        array = array.dictionary_decode()
    if pa.types.is_dictionary(array.type):
        words, missing = to_hashes(array.dictionary, column, place)
        codes = array.indices
        absent = None
        if codes.null_count:
            absent = np.asarray(codes.is_null().to_numpy(zero_copy_only=False), dtype=bool)
            codes = codes.fill_null(0)
        index = codes.to_numpy(zero_copy_only=False)
        if words.size == 0:
            return np.zeros(index.size, dtype=np.uint64), np.ones(index.size, dtype=bool)
        if missing is not None:
            absent = missing[index] if absent is None else absent | missing[index]
        return words[index], absent
    if is_text(array.type) or array.type == HASHED:
        nulls = np.asarray(array.is_null().to_numpy(zero_copy_only=False), dtype=bool) if array.null_count else None
        if is_text(array.type):
            return hash_texts(array), nulls
        stored = np.frombuffer(array.buffers()[1], dtype=np.uint64)
        return stored[array.offset : array.offset + len(array)], nulls
    values, gaps = to_integers(array, column, place)
    return hash_integers(values), gaps


def _parse(array: Any, kind: Any, column: str, place: Place, wanted: str) -> Any:
    """Convert texts to numbers; on failure find the first text that does not convert."""
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        low, high = 0, len(array)
        while high - low > 1:
            middle = (low + high) // 2
            try:
                array.slice(low, middle - low).cast(kind)
                low = middle
            except pa.ArrowInvalid:
                high = middle
        text = array[low].as_py()
        text = text.decode(errors="replace") if isinstance(text, bytes) else text
        if pa.types.is_integer(kind) and re.fullmatch(r"[+-]?[0-9]+", text):
            wanted = "between -2^63 and 2^63 - 1, the range of whole numbers"
        raise DataError(f"{place(low)}: column '{column}': '{text}' is not {wanted}") from None
