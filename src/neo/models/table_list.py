"""A list of tables in a CSV file: a model that is planned without being trained. Torch-free."""

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from neo.errors import DataError, did_you_mean
from neo.optim.spec import SPARSE_OPTIMIZERS
from neo.tables.spec import Pooling, TableSpec, WeightsDtype

T = TypeVar("T")
REQUIRED_COLUMNS = ("name", "rows", "dim", "pooling")
OPTIONAL_COLUMNS = ("weights_dtype", "optimizer", "skew", "weighted", "features")
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True)
class ListedTable:
    """One row of the file.

    Attributes:
        table: The table; its pooling factor is the file's ``pooling``.
        weights_dtype: Overrides ``optim.sparse.weights_dtype`` for this table; None keeps it.
        optimizer: Overrides ``optim.sparse.name`` for this table; None keeps it.
        skew: Exponent of the Zipf distribution of its ids; None where the file does not say.
    """

    table: TableSpec
    weights_dtype: WeightsDtype | None = None
    optimizer: str | None = None
    skew: float | None = None


def tables_from_csv(path: str | Path) -> tuple[TableSpec, ...]:
    """Read the tables of ``path``. Raises DataError as ``listed_tables`` does."""
    return tuple(listed.table for listed in listed_tables(path))


def listed_tables(path: str | Path) -> tuple[ListedTable, ...]:
    """Read a table list with all that it says about each table.

    The columns are ``name``, ``rows``, ``dim`` and ``pooling`` (mean ids per sample); optional are ``weights_dtype``,
    ``optimizer``, ``skew``, ``weighted`` (true or false) and ``features``: how many features read the table, or their
    names with ``;`` between them.

    Raises:
        DataError: The file cannot be read, or a value is wrong; the message names file, line, column and value.
    """
    file = Path(path)
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            rows = list(csv.reader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file}: cannot read the table list: {error}") from error
    if not rows:
        raise DataError(f"{file}: the file is empty; its first line must be {','.join(REQUIRED_COLUMNS)}")
    header = _checked_header(file, rows[0])
    tables = [_Row(file, line, header, cells).table() for line, cells in enumerate(rows[1:], start=2) if any(cells)]
    if not tables:
        raise DataError(f"{file}: the file lists no table below its header")
    _refuse_duplicates(file, rows, header)
    return tuple(tables)


def _checked_header(file: Path, cells: list[str]) -> dict[str, int]:
    names = [cell.strip() for cell in cells]
    known = (*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS)
    for name in names:
        if name not in known:
            raise DataError(f"{file}, line 1: '{name}' is not a column of a table list; {did_you_mean(name, known)}")
        if names.count(name) > 1:
            raise DataError(f"{file}, line 1: column '{name}' is there twice")
    missing = [name for name in REQUIRED_COLUMNS if name not in names]
    if missing:
        raise DataError(f"{file}, line 1: missing column {', '.join(missing)}; it has {', '.join(names)}")
    return {name: position for position, name in enumerate(names)}


def _refuse_duplicates(file: Path, rows: list[list[str]], header: dict[str, int]) -> None:
    first_line: dict[str, int] = {}
    for line, cells in enumerate(rows[1:], start=2):
        if not any(cells):
            continue
        name = cells[header["name"]].strip()
        if name in first_line:
            raise DataError(
                f"{file}, line {line}, column name: '{name}' is already the table of line {first_line[name]}"
            )
        first_line[name] = line


class _Row:
    """One line of the file; every reader names file, line, column and value when it refuses."""

    def __init__(self, file: Path, line: int, header: dict[str, int], cells: list[str]) -> None:
        if len(cells) != len(header):
            raise DataError(f"{file}, line {line}: {len(cells)} values for {len(header)} columns ({', '.join(header)})")
        self._place = f"{file}, line {line}"
        self._cells = {name: cells[position].strip() for name, position in header.items()}

    def table(self) -> ListedTable:
        """Return the checked table."""
        name = self._read("name", str, lambda text: text != "", "a name")
        dtypes, optimizers = list(WeightsDtype), SPARSE_OPTIMIZERS.names()
        weights_dtype = self._optional("weights_dtype", str, lambda text: text in dtypes, " or ".join(dtypes))
        optimizer = self._optional("optimizer", str, lambda text: text in optimizers, " or ".join(optimizers))
        table = TableSpec(
            name=name,
            num_embeddings=self._read("rows", int, lambda count: count >= 1, "a whole number of at least 1"),
            embedding_dim=self._read("dim", int, lambda count: count >= 1, "a whole number of at least 1"),
            feature_names=self._feature_names(name),
            pooling=Pooling.SUM,
            weighted=self._optional("weighted", _boolean, lambda _: True, "true or false") or False,
            pooling_factor=self._read("pooling", float, _positive, "a number above 0 (mean ids per sample)"),
        )
        skew = self._optional(
            "skew", float, lambda value: math.isfinite(value) and value >= 0, "a number of at least 0"
        )
        return ListedTable(table, None if weights_dtype is None else WeightsDtype(weights_dtype), optimizer, skew)

    def _feature_names(self, table: str) -> tuple[str, ...]:
        text = self._cells.get("features", "")
        if text in ("", "1"):
            return (table,)
        if text.lstrip("-").isdigit():
            wanted = "at least 1 feature, as a number or as names with ; between them"
            return tuple(f"{table}_{i}" for i in range(self._read("features", int, lambda count: count >= 1, wanted)))
        names = tuple(part.strip() for part in text.split(";"))
        if "" in names or len(set(names)) != len(names):
            raise self._refusal("features", "distinct names with ; between them")
        return names

    def _optional(self, column: str, convert: Callable[[str], T], legal: Callable[[T], bool], wanted: str) -> T | None:
        return None if self._cells.get(column, "") == "" else self._read(column, convert, legal, wanted)

    def _read(self, column: str, convert: Callable[[str], T], legal: Callable[[T], bool], wanted: str) -> T:
        try:
            value = convert(self._cells[column])
        except (ValueError, KeyError):
            raise self._refusal(column, wanted) from None
        if not legal(value):
            raise self._refusal(column, wanted)
        return value

    def _refusal(self, column: str, wanted: str) -> DataError:
        return DataError(f"{self._place}, column {column}: '{self._cells[column]}' is not {wanted}")


def _boolean(text: str) -> bool:
    return _BOOLEANS[text.lower()]


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0
