"""``neo data prepare RAW --out FOLDER``: raw Criteo files to Parquet."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from neo.data.criteo_lines import Ids
from neo.data.prepare import ROW_GROUP_SIZE, Job, find_jobs, prepare
from neo.data.spec import CRITEO_CATEGORICAL, CRITEO_DENSE


def run_prepare(arguments: Sequence[str]) -> int:
    """Run the command.

    Returns:
        0 when all files are written.

    Raises:
        DataError: A line or a file is bad.
    """
    asked = _parser().parse_args(list(arguments))
    ids = Ids(asked.ids)
    raw, folder = asked.raw.expanduser(), asked.out.expanduser()
    jobs = find_jobs(raw, folder, ids=ids, row_group_size=asked.row_group_size)
    with _bar(jobs) as progress:
        totals = prepare(
            jobs,
            ids=ids,
            row_group_size=asked.row_group_size,
            max_bad_lines=asked.max_bad_lines,
            progress=progress,
        )
    kept = sum(job.kept for job in jobs)
    print(f"{totals.num_samples:,} samples in {len(jobs)} file{'' if len(jobs) == 1 else 's'} in {folder}", end="")
    print(f" ({kept} of them finished before)" if kept else "")
    for example in totals.examples:
        print(f"left out: {example}", file=sys.stderr)
    if totals.num_bad_lines:
        print(f"left out: {totals.num_bad_lines} bad lines in all", file=sys.stderr)
    columns = f"data.dense='[{','.join(CRITEO_DENSE)}]' data.categorical='[{','.join(CRITEO_CATEGORICAL)}]'"
    print(f"train with: data=parquet data.path={folder} data.label=label {columns} data.dense_transform=log1p")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="neo data prepare", description=__doc__)
    parser.add_argument("raw", type=Path, help="a file, a folder of files (days) or a glob pattern; .gz .bz2 .zst too")
    parser.add_argument("--out", type=Path, required=True, help="folder of the Parquet files, one per raw file")
    parser.add_argument(
        "--ids",
        choices=[kind.value for kind in Ids],
        default=Ids.INTEGER.value,
        help="how ids are stored (%(default)s)",
    )
    parser.add_argument(
        "--row-group-size", type=_count_from(1024), default=ROW_GROUP_SIZE, help="samples of a row group (%(default)s)"
    )
    parser.add_argument(
        "--max-bad-lines",
        type=_count_from(0),
        default=0,
        help="leave out so many bad lines, all files together; blank lines are passed over, not counted",
    )
    return parser


def _count_from(least: int) -> Callable[[str], int]:
    def count(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is below the limit {least}")
        return value

    return count


@contextmanager
def _bar(jobs: Sequence[Job]) -> Iterator[Callable[[Job, int], None]]:
    columns = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    )  # fmt: skip
    sizes = [job.raw.stat().st_size for job in jobs]
    before = {id(job): sum(sizes[:place]) for place, job in enumerate(jobs)}
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        task = progress.add_task("preparing", total=sum(sizes))
        yield lambda job, read: progress.update(task, completed=before[id(job)] + read, description=job.raw.name)
