"""Criteo's raw display-advertising format: tab-separated, no header; label, 13 integers, 26 hexadecimal ids.

An empty field is a missing value; anything else than a whole number or up to 8 hexadecimal digits is refused.
Where no label is wanted the files may lack it, as Criteo's own test files do.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from neo.data.column_check import read_lines
from neo.data.columns import Place, parse_integers
from neo.data.delimited import DelimitedReader, TextFormat
from neo.data.files import list_files
from neo.data.reader import ArrowRows
from neo.data.spec import CRITEO_CATEGORICAL, CRITEO_DENSE, DataSpec, Split
from neo.errors import DataError

_MOST_DIGITS = 8


def open_criteo(data: DataSpec, split: Split) -> DelimitedReader:
    """Return the reader of one split. Raises as ``DelimitedReader`` does."""
    return DelimitedReader(data, split, _FORMAT if data.label is not None or _has_label(data, split) else _UNLABELLED)


def _has_label(data: DataSpec, split: Split) -> bool:
    """Whether the first line of the first file has a field for the label."""
    file = list_files(data.path_of(split), data.name)[0]
    first = next((line for _, line in read_lines(file) if line.strip()), b"")
    return first.count(b"\t") >= len(_FORMAT.columns or ()) - 1


def check_rows(rows: ArrowRows, place: Callable[[ArrowRows, int], str]) -> ArrowRows:
    """Return the rows with dense columns as whole numbers and ids in lower case, so that either case is one id.

    Raises:
        DataError: A dense value is no whole number, or an id is not hexadecimal.
    """

    def place_of(position: int) -> str:
        return place(rows, position)

    table = rows.table
    for index, name in enumerate(table.column_names):
        if name in CRITEO_DENSE:
            column = parse_integers(rows.column(name), name, place_of)
        elif name in CRITEO_CATEGORICAL:
            column = _lower_hexadecimal(rows.column(name), name, place_of)
        else:
            continue
        table = table.set_column(index, name, column)
    return replace(rows, table=table)


def _lower_hexadecimal(array: Any, column: str, place: Place) -> Any:
    """Check ``[n]`` texts all at once, on the bytes that Arrow holds, and write their letters in lower case."""
    valid, offset_bytes, content = array.buffers()
    offsets = np.frombuffer(offset_bytes, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    if len(array) == 0 or content is None or offsets[0] == offsets[-1]:
        return array
    first = int(offsets[0])
    digits = _LOWER[np.frombuffer(content, dtype=np.uint8)[first : int(offsets[-1])]]
    wrong = np.diff(offsets) > _MOST_DIGITS
    if not digits.all():
        bad = first + np.flatnonzero(digits == 0)
        wrong[np.searchsorted(offsets, bad, side="right") - 1] = True
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        text = array.cast(pa.binary())[at].as_py().decode(errors="replace")
        raise DataError(f"{place(at)}: column '{column}': '{text}' is not a hexadecimal id of at most 8 digits")
    moved = pa.py_buffer(offsets - first)
    if array.null_count == 0:
        valid = None
    elif array.offset:
        valid = pa.py_buffer(np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [valid, moved, pa.py_buffer(digits)])


def _lower_digits() -> NDArray[np.uint8]:
    """Return what each byte becomes: a hexadecimal digit in lower case, 0 for everything else."""
    table = np.zeros(256, dtype=np.uint8)
    for digit in "0123456789abcdefABCDEF":
        table[ord(digit)] = ord(digit.lower())
    return table


_LOWER = _lower_digits()
_FORMAT = TextFormat(
    delimiter="\t", columns=("label", *CRITEO_DENSE, *CRITEO_CATEGORICAL), quoted=False, check_rows=check_rows
)
_UNLABELLED = replace(_FORMAT, columns=(*CRITEO_DENSE, *CRITEO_CATEGORICAL))
