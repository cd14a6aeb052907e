"""Parquet files, read row group by row group in batches of bounded size."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from neo.data.column_check import ColumnCheck
from neo.data.columns import Kind, hashed_array, kind_of
from neo.data.encode import ArrowEncoder, check_kind
from neo.data.files import list_files, no_samples
from neo.data.plain import PlainColumn, TextRows, is_plain_id, is_plain_number, split_columns
from neo.data.reader import ArrowRows
from neo.data.schema import DataSchema
from neo.data.spec import DataSpec, Encoding, Split
from neo.errors import ConfigError, DataError

_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class _RowGroup:
    file: int
    number: int
    first: int
    num_rows: int


class ParquetReader:
    """Reads one split of Parquet files; ``Reader`` describes the methods.

    Raises:
        ConfigError: A file lacks a column, or has one of a wrong type.
        DataError: A file is missing or broken, or no file holds samples.
    """

    def __init__(self, data: DataSpec, split: Split) -> None:
        self._data = data
        self._files = list_files(data.path_of(split), data.name)
        self._wanted = list(data.columns)
        self._groups: list[_RowGroup] = []
        self._kinds: dict[str, Kind | None] = dict.fromkeys(data.features)
        self._plain = frozenset(data.columns) - frozenset(data.lists)
        self._text_rows: dict[str, TextRows] = {}
        check = ColumnCheck(data)
        for index, file in enumerate(self._files):
            self._inspect(index, file, check)
        if check.findings:
            raise ConfigError([finding.under("data") for finding in check.findings])
        if not self._groups:
            raise no_samples(self._files)

    def _inspect(self, index: int, file: Path, check: ColumnCheck) -> None:
        """Note the row groups of a file, and check its columns."""
        try:
            with pq.ParquetFile(file) as opened:
                schema, metadata = opened.schema_arrow, opened.metadata
                sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"'{file}' cannot be read as Parquet: {_first_line(error)}") from None
        if sum(sizes) == 0:
            return  # its columns may be of any type
        check.parquet(file, schema)
        if not check.findings:
            self._note_kinds(file, schema)
            self._plain = frozenset(name for name in self._plain if self._can_be_plain(name, schema.field(name).type))
        first = 0
        for number, size in enumerate(sizes):
            self._groups.append(_RowGroup(index, number, first, size))
            first += size

    def _can_be_plain(self, name: str, kind: Any) -> bool:
        return is_plain_id(kind) if name in self._data.features else is_plain_number(kind)

    def _note_kinds(self, file: Path, schema: Any) -> None:
        where = f"'{file}'"
        for name in self._data.features:
            kind = schema.field(name).type
            self._note_kind(
                name, kind_of(name, kind.value_type if name in self._data.lists else kind, where=where), where
            )

    def _note_kind(self, name: str, kind: Kind | None, where: str) -> None:
        known = self._kinds[name]
        if known is not None and kind is not None and known is not kind:
            raise DataError(f"{where}: column '{name}' holds {kind}, but {known} in '{self._files[0]}'")
        self._kinds[name] = kind if known is None else known

    def num_samples(self) -> int | None:
        """Return the number of samples, from the files' footers."""
        return sum(group.num_rows for group in self._groups)

    def kinds(self) -> Mapping[str, Kind | None]:
        """Return what the ids of each sparse column are."""
        return self._kinds

    def blocks(self, *, order: np.random.Generator | None, limit: int | None, raw: bool = False) -> Iterator[ArrowRows]:
        """Yield the rows; ``order`` permutes the row groups."""
        chosen = []
        left = self.num_samples() if limit is None else limit
        for group in self._groups:
            if left:
                chosen.append((group, min(group.num_rows, left)))
                left -= min(group.num_rows, left)
        places = np.arange(len(chosen)) if order is None else order.permutation(len(chosen))
        for place in places.tolist():
            group, count = chosen[place]
            yield from self._blocks_of(group, count, raw)

    def _blocks_of(self, group: _RowGroup, count: int, raw: bool) -> Iterator[ArrowRows]:
        file, first = self._files[group.file], 0
        # Hashing what a dictionary holds is several times cheaper than hashing every text.
        texts = [] if self._data.encoding is Encoding.IDENTITY else self._text_columns
        try:
            with pq.ParquetFile(file, read_dictionary=texts) as opened:
                for batch in opened.iter_batches(_BATCH_ROWS, row_groups=[group.number], columns=self._wanted):
                    table = pa.Table.from_batches([batch]).slice(0, count - first)
                    size = table.num_rows
                    plain: Mapping[str, PlainColumn] = {}
                    if not raw:
                        table, plain = self._settle(table, texts)
                    yield ArrowRows.of(table, file=group.file, first=group.first + first, count=size, plain=plain)
                    first += size
                    if first == count:
                        return
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"'{file}', row group {group.number}: cannot be read: {_first_line(error)}") from None
        raise DataError(f"'{file}', row group {group.number}: holds {first} rows instead of {group.num_rows}")

    def _settle(self, table: Any, texts: Sequence[str]) -> tuple[Any, Mapping[str, PlainColumn]]:
        """Make columns plain, and replace dictionaries by rows, hashes or values: those of two batches differ."""
        table, split = split_columns(table, self._plain)
        plain = dict(split)
        for name in table.column_names:
            column = table.column(name).chunk(0)
            if name in self._text_rows:
                plain[name] = self._text_rows[name].of(column)
                table = table.drop_columns([name])
            elif name in texts:
                table = table.set_column(table.column_names.index(name), name, hashed_array(column))
            elif pa.types.is_dictionary(column.type):
                values = column.cast(column.type.value_type)
                table = table.set_column(table.column_names.index(name), name, values)
        return table, plain

    @property
    def _text_columns(self) -> list[str]:
        return [name for name in self._data.categorical if self._kinds[name] is Kind.TEXT]

    def check(self, rows: ArrowRows) -> ArrowRows:
        """Return the rows: types are checked already."""
        return rows

    def place(self, rows: ArrowRows, position: int) -> str:
        """Return file, row group and row in it."""
        file, number = int(rows.files[position]), int(rows.numbers[position])
        for group in self._groups:
            if group.file == file and group.first <= number < group.first + group.num_rows:
                return f"'{self._files[file]}', row group {group.number}, row {number - group.first}"
        return f"'{self._files[file]}', row {number}"

    def encoder(self, schema: DataSchema, *, seed: int) -> ArrowEncoder:
        """Return what encodes the rows of this reader by ``schema``; texts are looked up while they are read.

        Raises:
            DataError: A column holds ids of another kind than in the training data.
        """
        del seed  # nothing is random about files
        for column in schema.sparse:
            check_kind(column, self._kinds[column.name], where=f"'{self._files[0]}'")
        encoder = ArrowEncoder(self._data, schema, reader=self, separator=None)
        if self._data.encoding is not Encoding.IDENTITY:
            columns = {column.name: column for column in schema.sparse}
            for name in self._text_columns:
                self._text_rows[name] = TextRows(partial(encoder.rows_of_hashes, columns[name]))
        return encoder


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or ["unknown error"])[0]
