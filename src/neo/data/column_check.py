"""Are the configured columns there, and can their types play their roles? Footers and headers tell, torch-free."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from neo.data.columns import is_list, kind_of
from neo.data.files import list_files
from neo.errors import DataError, Finding, did_you_mean

_OTHER_SEPARATORS = {";": "';'", "\t": "tabs"}


@dataclass
class ColumnCheck:
    """Collects what is wrong with the columns of files; a column is named once, with the first file that lacks it.

    Args:
        data: A ``DataConfig`` or ``DataSpec``: which column plays which role.

    Attributes:
        findings: What was found, keys relative to ``data``.
    """

    data: Any
    findings: list[Finding] = field(default_factory=list)
    _told: set[tuple[str, str]] = field(default_factory=set)

    def parquet(self, file: Path, schema: Any) -> None:
        """Check the Arrow schema of a Parquet file."""
        self._missing(file, schema.names)
        for key, name in roles(self.data):
            if name in schema.names:
                problem = _problem(key, name, schema.field(name).type)
                if problem:
                    self._tell(key, name, f"column '{name}' in '{file}' {problem}")

    def csv(self, file: Path, names: Sequence[str], *, path_key: str = "path") -> None:
        """Check the header of a CSV file."""
        only = names[0] if len(names) == 1 else ""
        looks = [shown for separator, shown in _OTHER_SEPARATORS.items() if separator in only]
        if looks:
            problem = f"'{file}', line 1: the only column is '{only}', which looks separated by {looks[0]}"
            self._tell(path_key, str(file), problem, "neo reads commas: write the file with them")
            return
        self._missing(file, names)
        for key, name in roles(self.data):
            if names.count(name) > 1:
                self._tell(key, name, f"there are {names.count(name)} columns '{name}' in '{file}'", "rename one")

    def _missing(self, file: Path, names: Sequence[str]) -> None:
        for key, name in roles(self.data):
            if name not in names:
                self._tell(key, name, f"there is no column '{name}' in '{file}'", did_you_mean(name, names))

    def _tell(self, key: str, name: str, problem: str, fix: str = "") -> None:
        if (key, name) not in self._told:
            self._told.add((key, name))
            self.findings.append(Finding(key, problem, fix))


def roles(data: Any) -> list[tuple[str, str]]:
    """Return key and column of every role of a ``DataConfig`` or ``DataSpec``."""
    named = [] if data.label is None else [("label", data.label)]
    for key in ("dense", "categorical", "lists", "list_weights"):
        named += [(key, name) for name in getattr(data, key) or () if name is not None]
    return named


def check_files(config: Any) -> list[Finding]:
    """Return what is wrong with the columns of the training and validation files of a ``DataConfig``.

    Files that cannot be read are left to the reader, which says why.
    """
    check = ColumnCheck(config)
    for path_key in ("path", "val_path"):
        for file in _files(getattr(config, path_key), config.name):
            try:
                if config.name == "csv":
                    check.csv(file, header(file), path_key=path_key)
                elif config.name == "parquet":
                    with pq.ParquetFile(file) as opened:
                        if opened.metadata.num_rows:
                            check.parquet(file, opened.schema_arrow)
            except (DataError, pa.ArrowException, OSError, EOFError):
                continue
    return check.findings


def header(file: Path) -> tuple[str, ...]:
    """Return the names in the first line of a CSV file that is not blank.

    Raises:
        DataError: That line is no header.
    """
    first = next((line for _, line in read_lines(file) if line.strip(b"\r\n")), b"")
    text = first.removeprefix(b"\xef\xbb\xbf").decode(errors="replace").rstrip("\r\n")
    try:
        return tuple(next(csv.reader([text]), []))
    except csv.Error as error:
        raise DataError(f"'{file}', line 1: is no header of a CSV file: {error}") from None


def read_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield number, from 1, and content of every line of a file, compressed or not."""
    with pa.input_stream(str(file), compression="detect") as stream:
        yield from enumerate(io.BufferedReader(stream), start=1)


def is_number(kind: Any) -> bool:
    """Whether this Arrow type holds numbers."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def _files(path: Any, reader: str) -> tuple[Path, ...]:
    try:
        return () if path is None else list_files(path, reader)
    except DataError:
        return ()  # told with the key of the path


def _problem(key: str, name: str, kind: Any) -> str:
    """Return why a column of this Arrow type cannot play this role; empty if it can."""
    has = f"has the type {kind}"
    if key in ("label", "dense"):
        return "" if is_number(kind) or pa.types.is_null(kind) else f"{has}, which is no number"
    if key == "list_weights":
        return "" if is_list(kind) and is_number(kind.value_type) else f"{has}; weights are lists of numbers"
    if key == "lists" and not is_list(kind):
        return f"{has}; data.lists names list columns"
    if key == "categorical" and is_list(kind):
        return f"{has}; name it in data.lists instead"
    try:
        kind_of(name, kind.value_type if key == "lists" else kind, where="")
    except DataError:
        return f"{has}; ids must be whole numbers or text"
    return ""
