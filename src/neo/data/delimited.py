"""Delimited text, read in blocks: every field stays text until a rank encodes its own rows."""

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from neo.data.column_check import ColumnCheck, header, read_lines
from neo.data.columns import Kind
from neo.data.encode import ArrowEncoder
from neo.data.files import list_files, no_samples
from neo.data.reader import ArrowRows
from neo.data.schema import DataSchema
from neo.data.spec import DataSpec, Encoding, Split
from neo.errors import ConfigError, DataError

_BLOCK_BYTES = 2**20  # larger ones are slower: they leave the processor's cache
_COUNTED_BYTES = 256 * 2**20


@dataclass(frozen=True)
class TextFormat:
    """How lines become fields.

    Attributes:
        delimiter: Between two fields.
        columns: Names of the fields; None to read them from the first line.
        quoted: Whether a field may stand in double quotes.
        list_separator: Between two elements of a list.
        check_rows: What checks the values that only this format promises; takes rows and what says their place.
    """

    delimiter: str
    columns: tuple[str, ...] | None
    quoted: bool
    list_separator: str = "|"
    check_rows: Callable[[ArrowRows, Callable[[ArrowRows, int], str]], ArrowRows] | None = None


class DelimitedReader:
    """Reads one split of delimited files; ``Reader`` describes the methods.

    Args:
        data: Which files and columns.
        split: Which split.
        text: How lines become fields.

    Raises:
        ConfigError: A file lacks a column.
        DataError: A file is missing or empty.
    """

    def __init__(self, data: DataSpec, split: Split, text: TextFormat) -> None:
        self._data = data
        self._text = text
        self._files = list_files(data.path_of(split), data.name)
        self._wanted = list(data.columns)
        self._columns = [text.columns or header(file) for file in self._files]
        if text.columns is None:
            check = ColumnCheck(data)
            for file, names in zip(self._files, self._columns, strict=True):
                check.csv(file, names)
            if check.findings:
                raise ConfigError([finding.under("data") for finding in check.findings])

    def num_samples(self) -> int | None:
        """Return the number of samples if counting the lines is cheap, else None."""
        plain = all(file.suffix not in (".gz", ".bz2", ".zst") for file in self._files)
        if not plain or sum(file.stat().st_size for file in self._files) > _COUNTED_BYTES:
            return None
        titles = 0 if self._text.columns is not None else 1
        return sum(max(0, _count_lines(file) - titles) for file in self._files)

    def kinds(self) -> Mapping[str, Kind | None]:
        """Return what the ids of each sparse column are: text, but for identity."""
        kind = Kind.INTEGER if self._data.encoding is Encoding.IDENTITY else Kind.TEXT
        return dict.fromkeys(self._data.features, kind)

    def blocks(self, *, order: np.random.Generator | None, limit: int | None, raw: bool = False) -> Iterator[ArrowRows]:
        """Yield the rows; ``order`` permutes the files, where there is no limit."""
        del raw  # every field is kept as it is written
        indexes = np.arange(len(self._files))
        if order is not None and limit is None:
            order.shuffle(indexes)
        left, found = limit, False
        for index in indexes.tolist():
            for rows in self._blocks_of(index):
                found = True
                if left is not None and len(rows) >= left:
                    yield rows.slice(0, left)
                    return
                left = None if left is None else left - len(rows)
                yield rows
        if not found:
            raise no_samples(self._files)

    def _blocks_of(self, index: int) -> Iterator[ArrowRows]:
        file, first = self._files[index], 0
        try:
            with self._open(file) as stream:
                for batch in stream:
                    if batch.num_rows:
                        table = pa.Table.from_batches([batch])
                        yield ArrowRows.of(table, file=index, first=first, count=batch.num_rows)
                    first += batch.num_rows
        except (pa.ArrowException, OSError, EOFError) as error:
            raise self._explain(index, error) from None

    def _open(self, file: Path) -> Any:
        names = self._text.columns
        return pacsv.open_csv(
            str(file),
            read_options=pacsv.ReadOptions(
                block_size=_BLOCK_BYTES, column_names=None if names is None else list(names)
            ),
            parse_options=pacsv.ParseOptions(
                delimiter=self._text.delimiter, quote_char='"' if self._text.quoted else False
            ),
            convert_options=pacsv.ConvertOptions(
                column_types={name: pa.string() for name in self._wanted},
                include_columns=self._wanted,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
                check_utf8=False,
            ),
        )

    def check(self, rows: ArrowRows) -> ArrowRows:
        """Return the rows in the form that the format promises."""
        return rows if self._text.check_rows is None else self._text.check_rows(rows, self.place)

    def place(self, rows: ArrowRows, position: int) -> str:
        """Return file and line; the file is read again up to there."""
        index = int(rows.files[position])
        file, left = self._files[index], int(rows.numbers[position])
        left += 0 if self._text.columns is not None else 1
        for number, line in read_lines(file):
            if line.strip(b"\r\n"):
                if left == 0:
                    return f"'{file}', line {number}"
                left -= 1
        return f"'{file}'"

    def encoder(self, schema: DataSchema, *, seed: int) -> ArrowEncoder:
        """Return what encodes the rows of this reader by ``schema``."""
        del seed  # nothing is random about files
        return ArrowEncoder(self._data, schema, reader=self, separator=self._text.list_separator)

    def _explain(self, index: int, error: BaseException) -> DataError:
        """Find the first line with a wrong number of fields."""
        file, expected = self._files[index], len(self._columns[index])
        try:
            for number, line in read_lines(file):
                fields = self._fields(line) if line.strip(b"\r\n") else None
                if fields is not None and len(fields) != expected:
                    last = fields[-1][:40]
                    return DataError(
                        f"'{file}', line {number}: {len(fields)} fields for {expected} columns; the last field, "
                        f"column {len(fields)}, is '{last}'"
                    )
        except (pa.ArrowException, OSError, EOFError) as broken:
            error = broken
        return DataError(f"'{file}' cannot be read: {(str(error).splitlines() or ['unknown error'])[0]}")

    def _fields(self, line: bytes) -> list[str]:
        text = line.decode(errors="replace").rstrip("\r\n")
        if not self._text.quoted:
            return text.split(self._text.delimiter)
        return next(csv.reader([text], delimiter=self._text.delimiter), [])


def _count_lines(file: Path) -> int:
    """Count the lines that are not blank."""
    count, open_line = 0, False
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            content = np.frombuffer(block.replace(b"\r", b""), dtype=np.uint8)
            ends = np.flatnonzero(content == ord("\n"))
            if ends.size == 0:
                open_line = open_line or content.size > 0
                continue
            gaps = np.diff(ends) > 1
            count += int(np.count_nonzero(gaps)) + int(open_line or ends[0] > 0)
            open_line = bool(ends[-1] + 1 < content.size)
    return count + int(open_line)
