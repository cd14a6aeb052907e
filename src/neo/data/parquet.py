"""Parquet files, read row group by row group in batches of bounded size."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from neo.data.columns import Kind, is_list, is_text, kind_of
from neo.data.encode import ArrowEncoder, check_kind
from neo.data.files import list_files
from neo.data.reader import ArrowRows
from neo.data.schema import DataSchema
from neo.data.spec import DataSpec, Split
from neo.errors import DataError, did_you_mean

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
        DataError: A file is missing, empty or broken, or lacks a column, or has one of a wrong type.
    """

    def __init__(self, data: DataSpec, split: Split) -> None:
        self._data = data
        self._files = list_files(data.path_of(split), data.name)
        weights = [name for name in data.list_weights if name is not None]
        self._wanted = [data.label, *data.dense, *data.features, *weights]
        self._groups: list[_RowGroup] = []
        self._kinds: dict[str, Kind | None] = dict.fromkeys(data.features)
        for index, file in enumerate(self._files):
            self._inspect(index, file)

    def _inspect(self, index: int, file: Path) -> None:
        """Note the row groups of a file, and check its columns."""
        try:
            with pq.ParquetFile(file) as opened:
                schema, metadata = opened.schema_arrow, opened.metadata
                sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"'{file}' cannot be read as Parquet: {_first_line(error)}") from None
        if sum(sizes) == 0:
            raise DataError(f"'{file}' is empty: it holds no samples; remove it")
        for name in self._wanted:
            if name not in schema.names:
                raise DataError(f"'{file}': there is no column '{name}'; {did_you_mean(name, schema.names)}")
        self._check_types(file, schema)
        first = 0
        for number, size in enumerate(sizes):
            self._groups.append(_RowGroup(index, number, first, size))
            first += size

    def _check_types(self, file: Path, schema: Any) -> None:
        where = f"'{file}'"
        for name in (self._data.label, *self._data.dense):
            kind = schema.field(name).type
            if not (_is_number(kind) or pa.types.is_null(kind)):
                raise DataError(f"{where}: column '{name}' has the type {kind}, which is no number")
        for name, weights in zip(self._data.lists, self._data.list_weights, strict=True):
            kind = schema.field(name).type
            if not is_list(kind):
                raise DataError(f"{where}: column '{name}' has the type {kind}; data.lists names list columns")
            self._note_kind(name, kind_of(name, kind.value_type, where=where), where)
            if weights is not None:
                kind = schema.field(weights).type
                if not is_list(kind) or not _is_number(kind.value_type):
                    raise DataError(f"{where}: column '{weights}' has the type {kind}; weights are lists of numbers")
        for name in self._data.categorical:
            kind = schema.field(name).type
            if is_list(kind):
                raise DataError(f"{where}: column '{name}' has the type {kind}; name it in data.lists instead")
            self._note_kind(name, kind_of(name, kind, where=where), where)

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

    def blocks(self, *, order: np.random.Generator | None, limit: int | None) -> Iterator[ArrowRows]:
        """Yield the rows; ``order`` permutes the row groups."""
        chosen = []
        left = self.num_samples() if limit is None else limit
        for group in self._groups:
            if left:
                chosen.append((group, min(group.num_rows, left)))
                left -= min(group.num_rows, left)
        places = np.arange(len(chosen)) if order is None else order.permutation(len(chosen))
        for place in places.tolist():
            yield from self._blocks_of(*chosen[place])

    def _blocks_of(self, group: _RowGroup, count: int) -> Iterator[ArrowRows]:
        file, first = self._files[group.file], 0
        try:
            with pq.ParquetFile(file) as opened:
                for batch in opened.iter_batches(_BATCH_ROWS, row_groups=[group.number], columns=self._wanted):
                    table = _plain(pa.Table.from_batches([batch]).slice(0, count - first))
                    yield ArrowRows.of(table, file=group.file, first=group.first + first)
                    first += table.num_rows
                    if first == count:
                        return
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"'{file}', row group {group.number}: cannot be read: {_first_line(error)}") from None
        raise DataError(f"'{file}', row group {group.number}: holds {first} rows instead of {group.num_rows}")

    def place(self, rows: ArrowRows, position: int) -> str:
        """Return file, row group and row in it."""
        file, number = int(rows.files[position]), int(rows.numbers[position])
        for group in self._groups:
            if group.file == file and group.first <= number < group.first + group.num_rows:
                return f"'{self._files[file]}', row group {group.number}, row {number - group.first}"
        return f"'{self._files[file]}', row {number}"

    def encoder(self, schema: DataSchema, *, seed: int) -> ArrowEncoder:
        """Return what encodes the rows of this reader by ``schema``.

        Raises:
            DataError: A column holds ids of another kind than in the training data.
        """
        del seed  # nothing is random about files
        for column in schema.sparse:
            check_kind(column, self._kinds[column.name], where=f"'{self._files[0]}'")
        return ArrowEncoder(self._data, schema, place=self.place, separator=None)


def _is_number(kind: Any) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def _plain(table: Any) -> Any:
    """Replace dictionary columns by their values: dictionaries of different batches do not fit each other."""
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            values = pa.string() if is_text(field.type.value_type) else field.type.value_type
            table = table.set_column(index, field.name, table.column(index).cast(values))
    return table


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or ["unknown error"])[0]
