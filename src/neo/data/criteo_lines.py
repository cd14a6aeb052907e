"""Blocks of raw Criteo lines to typed Arrow tables, torch-free; lines that are not Criteo's are told, with the reason.

A block is converted as a whole by Arrow; only where that fails, or a byte is there that no good line has, each of its
lines is looked at.

Shapes: n lines.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from neo.data.spec import CRITEO_CATEGORICAL, CRITEO_DENSE

LABEL = "label"
_DIGITS = 8
_INTEGER = re.compile(rb"-?[0-9]+")
_HEXADECIMAL = re.compile(rb"[0-9a-fA-F]{1,8}")
_INT32 = 2**31


class Ids(StrEnum):
    """How ids are stored: the number that the hexadecimal digits are (uint32), or the digits in lower case."""

    INTEGER = "integer"
    TEXT = "text"


@dataclass(frozen=True)
class BadLine:
    """A line that was left out: its number, from 1, and what is wrong with it."""

    number: int
    problem: str


class LineParser:
    """Converts blocks of lines of one file.

    Args:
        ids: How ids are stored.
        has_label: Whether lines begin with a label; Criteo's test files have none.
    """

    def __init__(self, ids: Ids, *, has_label: bool) -> None:
        self._ids = ids
        self._columns = ((LABEL,) if has_label else ()) + CRITEO_DENSE + CRITEO_CATEGORICAL
        types = {name: pa.string() for name in CRITEO_CATEGORICAL} | {name: pa.int32() for name in CRITEO_DENSE}
        self._convert = pacsv.ConvertOptions(
            column_types={**types, LABEL: pa.int8()},
            null_values=[""],
            strings_can_be_null=True,
            check_utf8=False,
        )
        self._parse = pacsv.ParseOptions(delimiter="\t", quote_char=False)

    @property
    def schema(self) -> Any:
        """The Arrow schema of the tables."""
        ids = pa.uint32() if self._ids is Ids.INTEGER else pa.string()
        kinds = {LABEL: pa.int8(), **dict.fromkeys(CRITEO_DENSE, pa.int32())}
        return pa.schema([(name, kinds.get(name, ids)) for name in self._columns])

    def parse(self, block: bytes, first_line: int) -> tuple[Any, list[BadLine]]:
        """Return the table of a block of whole lines, and the lines that are not in it; blank lines are no lines.

        Args:
            block: The lines.
            first_line: Number of the first.
        """
        if bool(_ALLOWED[np.frombuffer(block, dtype=np.uint8)].all()):
            table = self._table(block)
            if table is not None:
                return table, []
        good, bad = self._sort_out(block.split(b"\n"), first_line)
        table = self._table(b"\n".join(good)) if good else self.schema.empty_table()
        assert table is not None, "every line that is left was looked at"
        return table, bad

    def _table(self, block: bytes) -> Any:
        """Return the table of a block, None if one of its lines cannot be in it."""
        read = pacsv.ReadOptions(column_names=list(self._columns), block_size=max(1, len(block)) + 1, use_threads=False)
        try:
            table = pacsv.read_csv(
                pa.BufferReader(block), read_options=read, parse_options=self._parse, convert_options=self._convert
            ).combine_chunks()
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error) or not block.strip():
                return self.schema.empty_table()
            return None
        columns = []
        for name in self._columns:
            column = table.column(name)
            array = column.chunk(0) if column.num_chunks else pa.array([], column.type)
            if name == LABEL:
                labels = array.to_numpy(zero_copy_only=False)
                converted = array if array.null_count == 0 and ((labels == 0) | (labels == 1)).all() else None
            elif name in CRITEO_CATEGORICAL:
                converted = hexadecimal_numbers(array)
                if converted is not None and self._ids is Ids.TEXT:
                    converted = pa.compute.ascii_lower(array)
            else:
                converted = array
            if converted is None:
                return None
            columns.append(converted)
        return pa.table(columns, schema=self.schema)

    def _sort_out(self, lines: Sequence[bytes], first_line: int) -> tuple[list[bytes], list[BadLine]]:
        good, bad = [], []
        for number, line in enumerate(lines, start=first_line):
            text = line.removesuffix(b"\r")
            if not text:
                continue
            problem = self._problem(text)
            if problem:
                bad.append(BadLine(number, problem))
            else:
                good.append(text)
        return good, bad

    def _problem(self, line: bytes) -> str:
        """Return what is wrong with a line, empty if nothing is."""
        fields = line.split(b"\t")
        if len(fields) != len(self._columns):
            return f"has {len(fields)} field{'' if len(fields) == 1 else 's'} instead of {len(self._columns)}"
        for name, field in zip(self._columns, fields, strict=True):
            shown = field[:40].decode(errors="replace")
            if name == LABEL:
                if field not in (b"0", b"1"):
                    return f"column '{name}': '{shown}' is neither 0 nor 1"
            elif field and name in CRITEO_DENSE:
                if not _INTEGER.fullmatch(field):
                    return f"column '{name}': '{shown}' is not a whole number"
                if not -_INT32 <= int(field[:20]) < _INT32:
                    return f"column '{name}': '{shown}' is beyond 32 bits"
            elif field and not _HEXADECIMAL.fullmatch(field):
                return f"column '{name}': '{shown}' is not a hexadecimal id of at most 8 digits"
        return ""


def hexadecimal_numbers(array: Any) -> Any:
    """Return an Arrow array of uint32 for ``[n]`` hexadecimal texts, None if one is none; null stays null."""
    valid, offset_bytes, content = array.buffers()
    if len(array) == 0 or content is None or content.size == 0:
        return pa.nulls(len(array), pa.uint32())
    offsets = np.frombuffer(offset_bytes, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    digits = _VALUES[np.frombuffer(content, dtype=np.uint8)[first:last]]
    lengths = np.diff(offsets)
    if (digits < 0).any() or (lengths > _DIGITS).any():
        return None
    missing = _missing(array, valid)
    numbers = np.zeros(len(array), dtype=np.uint32)
    padded = np.concatenate([digits, np.zeros(_DIGITS, dtype=digits.dtype)]).astype(np.uint32)
    starts = offsets[:-1] - first
    for place in range(_DIGITS):
        inside = lengths > place
        numbers = np.where(inside, numbers << np.uint32(4) | padded[starts + place], numbers)
    return pa.array(numbers, mask=missing)


def _missing(array: Any, valid: Any) -> NDArray[np.bool_] | None:
    if array.null_count == 0:
        return None
    bits = np.unpackbits(np.frombuffer(valid, dtype=np.uint8), bitorder="little", count=array.offset + len(array))
    missing: NDArray[np.bool_] = bits[array.offset :] == 0
    return missing


def _byte_table(characters: str, values: Sequence[int], other: int) -> NDArray[np.int8]:
    table = np.full(256, other, dtype=np.int8)
    for character, value in zip(characters, values, strict=True):
        table[ord(character)] = value
    return table


_VALUES = _byte_table("0123456789abcdefABCDEF", [*range(16), *range(10, 16)], -1)
_ALLOWED = _byte_table("0123456789abcdefABCDEF-\t\n\r", [1] * 26, 0).astype(np.bool_)
