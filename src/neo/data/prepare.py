"""Raw Criteo files to Parquet, one for each, in constant memory, torch-free.

A file is written under a hidden name and renamed when it is whole, so that what has its name is finished: a later run
keeps it, and does the others.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from neo.data.criteo_lines import BadLine, Ids, LineParser
from neo.data.files import list_files
from neo.data.spec import CRITEO_CATEGORICAL, CRITEO_DENSE
from neo.errors import DataError

ROW_GROUP_SIZE = 131_072
_BLOCK_BYTES = 4 * 2**20
_LONGEST_LINE = 64 * 2**20
_KEY = b"neo.prepare"
_SHOWN = 5
_COMPRESSED = (".gz", ".bz2", ".zst")


@dataclass(frozen=True)
class Job:
    """One raw file and what becomes of it.

    Attributes:
        raw: The raw file.
        prepared: The Parquet file.
        kept: Whether an earlier run finished it, from the same raw file and with the same options.
    """

    raw: Path
    prepared: Path
    kept: bool


@dataclass
class Totals:
    """What a run did: samples and bad lines, kept files included, and the first few of the bad lines."""

    num_samples: int = 0
    num_bad_lines: int = 0
    examples: list[str] = field(default_factory=list)


def find_jobs(raw: Path, folder: Path, *, ids: Ids, row_group_size: int) -> list[Job]:
    """Return what there is to do, in the order of the files' names.

    Raises:
        DataError: Nothing is there, or two raw files would become one.
    """
    if raw.is_dir() and raw.resolve() == folder.resolve():
        raise DataError(f"'{folder}' holds the raw files; choose another folder with --out")
    jobs: list[Job] = []
    for file in list_files(raw, "criteo"):
        prepared = folder / f"{_stem(file)}.parquet"
        for other in jobs:
            if other.prepared == prepared:
                raise DataError(f"'{other.raw}' and '{file}' would both become '{prepared}'; remove one")
        source = _source(file, ids, row_group_size)
        jobs.append(Job(file, prepared, _written_from(prepared).get("source") == source))
    return jobs


def prepare(
    jobs: Sequence[Job],
    *,
    ids: Ids,
    row_group_size: int,
    max_bad_lines: int,
    progress: Callable[[Job, int], None],
) -> Totals:
    """Do all jobs that are not done.

    Args:
        jobs: From ``find_jobs``, with the same options.
        ids: How ids are stored.
        row_group_size: Samples of a row group.
        max_bad_lines: So many lines over all files may be left out.
        progress: Called with a job and how many bytes of its raw file are read.

    Raises:
        DataError: A line is bad, and no more may be left out; or a file cannot be read.
    """
    totals = Totals()
    for job in jobs:
        job.prepared.parent.mkdir(parents=True, exist_ok=True)
        if job.kept:
            record = _written_from(job.prepared)
            totals.num_samples += int(record["num_samples"])
            totals.num_bad_lines += int(record["num_bad_lines"])
        else:
            _prepare_file(job, ids, row_group_size, max_bad_lines, totals, progress)
        progress(job, job.raw.stat().st_size)
    return totals


def _prepare_file(
    job: Job, ids: Ids, row_group_size: int, max_bad_lines: int, totals: Totals, progress: Callable[[Job, int], None]
) -> None:
    source = _source(job.raw, ids, row_group_size)
    partial = job.prepared.with_name(f".{job.prepared.name}.part")
    num_samples, num_bad = 0, 0
    parser: LineParser | None = None
    writer: Any = None
    held: list[Any] = []
    try:
        for block, first_line, read in _blocks(job.raw):
            if parser is None:
                parser = LineParser(ids, has_label=_has_label(block))
                writer = pq.ParquetWriter(partial, parser.schema)
            table, bad = parser.parse(block, first_line)
            num_bad += len(bad)
            _count(totals, job.raw, bad, max_bad_lines)
            num_samples += table.num_rows
            held = _write(writer, [*held, table], row_group_size)
            progress(job, read)
        if writer is None or parser is None:
            raise DataError(f"'{job.raw}' holds no line")
        _write(writer, held, 1)
        record = {"source": source, "num_samples": num_samples, "num_bad_lines": num_bad}
        writer.add_key_value_metadata({_KEY: json.dumps(record).encode()})
        writer.close()
        writer = None
        _finish(partial, job.prepared)
    except OSError as error:
        raise DataError(f"'{job.prepared}' cannot be written: {_first_line(error)}") from None
    finally:
        if writer is not None:
            writer.close()
        partial.unlink(missing_ok=True)
    totals.num_samples += num_samples


def _write(writer: Any, tables: list[Any], row_group_size: int) -> list[Any]:
    """Write full row groups, and return what is left; all with a size of 1."""
    waiting = sum(table.num_rows for table in tables)
    if waiting < max(1, row_group_size):
        return tables
    whole = pa.concat_tables(tables)
    if row_group_size == 1:
        writer.write_table(whole, row_group_size=waiting)
        return []
    full = waiting // row_group_size * row_group_size
    writer.write_table(whole.slice(0, full), row_group_size=row_group_size)
    return [whole.slice(full).combine_chunks()]


def _count(totals: Totals, file: Path, bad: Sequence[BadLine], max_bad_lines: int) -> None:
    for line in bad:
        text = f"'{file}', line {line.number}: {line.problem}"
        totals.num_bad_lines += 1
        if totals.num_bad_lines > max_bad_lines:
            more = f" ({totals.num_bad_lines} bad lines, --max-bad-lines={max_bad_lines})" if max_bad_lines else ""
            raise DataError(f"{text}{more}; correct it, or leave such lines out with --max-bad-lines=N")
        if len(totals.examples) < _SHOWN:
            totals.examples.append(text)


def _blocks(file: Path) -> Iterator[tuple[bytes, int, int]]:
    """Yield blocks of whole lines, the number of the first one, and how many bytes of the file are read.

    Raises:
        DataError: What stands between two line ends is no line.
    """
    line, rest = 1, b""
    codec = pa.Codec.detect(str(file)).name if file.suffix in _COMPRESSED else None
    with pa.OSFile(str(file)) as stored:
        stream = stored if codec is None else pa.CompressedInputStream(stored, codec)
        while content := _read(stream, file):
            content = rest + content
            end = content.rfind(b"\n") + 1
            rest = content[end:]
            if len(rest) > _LONGEST_LINE:
                raise DataError(f"'{file}', line {line}: no end within {_LONGEST_LINE} bytes: this is no text file")
            if end:
                yield content[:end], line, stored.tell()
                line += content.count(b"\n")
        if rest:
            yield rest, line, stored.tell()


def _read(stream: Any, file: Path) -> bytes:
    try:
        return bytes(stream.read(_BLOCK_BYTES))
    except (OSError, EOFError, pa.ArrowException) as error:
        raise DataError(f"'{file}' cannot be read: {_first_line(error)}") from None


def _has_label(block: bytes) -> bool:
    """Whether the first line has a field for the label."""
    first = next((line for line in block.split(b"\n") if line.strip()), b"")
    return first.count(b"\t") != len(CRITEO_DENSE) + len(CRITEO_CATEGORICAL) - 1


def _stem(file: Path) -> str:
    name = file.name
    for suffix in (*_COMPRESSED, ".txt", ".tsv", ".csv"):
        name = name.removesuffix(suffix)
    return name


def _source(file: Path, ids: Ids, row_group_size: int) -> dict[str, Any]:
    """Return what a Parquet file was made of, and how."""
    found = file.stat()
    return {
        "name": file.name,
        "bytes": found.st_size,
        "changed_ns": found.st_mtime_ns,
        "ids": ids.value,
        "row_group_size": row_group_size,
    }


def _written_from(prepared: Path) -> dict[str, Any]:
    """Return what a finished file says of itself, nothing if it is not there or not of this kind."""
    try:
        metadata = pq.read_metadata(prepared).metadata or {}
        record = json.loads(metadata.get(_KEY, b"{}"))
    except (OSError, pa.ArrowException, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or ["unknown error"])[0]


def _finish(partial: Path, prepared: Path) -> None:
    """Give a whole file its name once it is on the disk."""
    with partial.open("rb") as written:
        os.fsync(written.fileno())
    partial.replace(prepared)
