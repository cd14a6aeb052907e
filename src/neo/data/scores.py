"""Scores in Parquet, torch-free: parts that ranks wrote are joined in the order of the data, in bounded memory."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from neo.data.files import list_files
from neo.data.spec import DataSpec, Split
from neo.errors import DataError

SCORES = pa.schema([("row", pa.int64()), ("logit", pa.float32()), ("probability", pa.float32())])
"""``row`` counts the samples from 0, in the order of the data."""
_PLACES = (pa.field("file", pa.dictionary(pa.int32(), pa.string())), pa.field("file_row", pa.int64()))
_BATCH_ROWS = 16_384
_GROUP_ROWS = 131_072


def part_name(rank: int) -> str:
    """Return the file name of a rank's part."""
    return f"part_{rank:05d}.parquet"


class Places:
    """Which row of which file a sample is.

    Args:
        files: The files, in the order in which they are read.
        first_rows: ``[files]``: the number of the first sample of each.
    """

    def __init__(self, files: Sequence[Path], first_rows: NDArray[np.int64]) -> None:
        self._names = pa.array([str(file) for file in files], pa.string())
        self._first_rows = first_rows

    def columns(self, rows: NDArray[np.int64]) -> list[Any]:
        """Return file and row in it, from 0, of ``[n]`` samples."""
        file = np.searchsorted(self._first_rows, rows, side="right") - 1
        names = pa.DictionaryArray.from_arrays(pa.array(file, pa.int32()), self._names)
        return [names, pa.array(rows - self._first_rows[file])]


def places_of(data: DataSpec, split: Split) -> Places | None:
    """Return where the samples of a split come from, None where only reading all of it would tell."""
    if data.is_generated:
        return None
    files = list_files(data.path_of(split), data.name)
    if len(files) == 1:
        return Places(files, np.zeros(1, dtype=np.int64))
    if data.name != "parquet":
        return None
    counts = [pq.read_metadata(file).num_rows for file in files]
    filled = [(file, count) for file, count in zip(files, counts, strict=True) if count]
    sizes = np.array([count for _, count in filled], dtype=np.int64)
    return Places([file for file, _ in filled], np.cumsum(sizes) - sizes)


def join_parts(parts: Sequence[Path], out: Path, places: Places | None) -> int:
    """Join the parts of all ranks into one file and return its number of rows.

    Args:
        parts: What the ranks wrote: together every row once, each part in rising order.
        out: The file; a name that nobody reads yet.
        places: Adds the columns ``file`` and ``file_row``; None leaves them out.

    Raises:
        DataError: A row is missing or there twice.
    """
    schema = SCORES if places is None else pa.schema([*SCORES, *_PLACES])
    num_rows = 0
    held: list[Any] = []
    with ExitStack() as stack:
        streams = [_Stream(stack.enter_context(pq.ParquetFile(part))) for part in parts]
        writer = stack.enter_context(pq.ParquetWriter(out, schema))
        for run in _in_order(streams):
            held.append(run)
            num_rows += run.num_rows
            if num_rows // _GROUP_ROWS != (num_rows - run.num_rows) // _GROUP_ROWS:
                _write(writer, held, places)
                held = []
        _write(writer, held, places)
    return num_rows


class _Stream:
    """The rows of one part, a batch at a time."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._batches = file.iter_batches(_BATCH_ROWS)
        self._batch: Any = None
        self._rows = np.empty(0, dtype=np.int64)
        self.advance(0)

    @property
    def next_row(self) -> int | None:
        """Number of the next row, None at the end."""
        return int(self._rows[0]) if self._rows.size else None

    def take(self) -> Any:
        """Return the next rows as far as they follow each other without a gap."""
        gaps = np.flatnonzero(np.diff(self._rows) != 1)
        count = int(gaps[0]) + 1 if gaps.size else self._rows.size
        run = self._batch.slice(0, count)
        self.advance(count)
        return run

    def advance(self, count: int) -> None:
        """Leave rows behind, and read on where none is left."""
        self._rows = self._rows[count:]
        self._batch = None if self._batch is None else self._batch.slice(count)
        while self._rows.size == 0:
            self._batch = next(self._batches, None)
            if self._batch is None:
                return
            self._rows = self._batch.column(0).to_numpy()


def _in_order(streams: Sequence[_Stream]) -> Iterator[Any]:
    wanted = 0
    while heads := {stream.next_row: stream for stream in streams if stream.next_row is not None}:
        if wanted not in heads:
            raise DataError(f"the scores of row {wanted} are missing; the next ones are those of row {min(heads)}")
        run = heads[wanted].take()
        wanted += run.num_rows
        yield run


def _write(writer: pq.ParquetWriter, held: Sequence[Any], places: Places | None) -> None:
    if not held:
        return
    table = pa.Table.from_batches(held).combine_chunks()
    if places is not None:
        found = places.columns(table.column("row").to_numpy())
        for field, column in zip(_PLACES, found, strict=True):
            table = table.append_column(field, column)
    writer.write_table(table)
