"""What a path holds where nobody says it: the reader by the files' names, the role of each column by its type."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from neo.data.column_check import is_number
from neo.data.columns import is_list, is_text
from neo.data.files import list_files
from neo.data.spec import CRITEO_CATEGORICAL, CRITEO_DENSE
from neo.errors import DataError

_PARQUET = (".parquet", ".pq", ".parq")


@dataclass(frozen=True)
class Roles:
    """A role for every column that can play one; ``unused`` are the others, with their types."""

    label: str
    dense: tuple[str, ...]
    categorical: tuple[str, ...]
    lists: tuple[str, ...]
    unused: tuple[tuple[str, str], ...]


def infer_reader(path: Path) -> str:
    """Return ``parquet``, ``csv`` or ``criteo`` for a file, a folder or a glob pattern.

    Raises:
        DataError: Nothing is there.
    """
    for reader, suffixes in (("parquet", _PARQUET), ("csv", (".csv", ".csv.gz", ".csv.bz2", ".csv.zst"))):
        try:
            names = [file.name.lower() for file in list_files(path, reader)]
        except DataError:
            continue
        if all(name.endswith(suffixes) for name in names):
            return reader
    list_files(path, "criteo")
    return "criteo"


def infer_roles(path: Path, reader: str, *, label: str) -> Roles:
    """Return roles by type: lists of ids, texts and whole numbers are ids, fractions are dense; I1 … as Criteo's are.

    Args:
        path: Parquet or CSV files.
        reader: ``parquet`` or ``csv``.
        label: The column of the label.

    Raises:
        DataError: The first file cannot be read.
    """
    file = list_files(path, reader)[0]
    try:
        schema = pq.read_schema(file) if reader == "parquet" else _csv_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"'{file}' cannot be read: {(str(error).splitlines() or ['?'])[0]}") from None
    dense, categorical, lists, unused = [], [], [], []
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if field.name == label:
            continue
        if is_list(kind):
            lists.append(field.name)
        elif field.name in CRITEO_DENSE or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            dense.append(field.name)
        elif field.name in CRITEO_CATEGORICAL or is_text(kind) or is_number(kind) or pa.types.is_null(kind):
            categorical.append(field.name)
        else:
            unused.append((field.name, str(field.type)))
    return Roles(label, tuple(dense), tuple(categorical), tuple(lists), tuple(unused))


def _csv_schema(file: Path) -> Any:
    with pacsv.open_csv(str(file)) as stream:
        return stream.schema
