"""Which files a path stands for: one file, a folder of them, or a glob pattern."""

import glob
from collections.abc import Sequence
from pathlib import Path

from neo.errors import DataError

_SUFFIXES = {
    "parquet": (".parquet", ".pq", ".parq"),
    "csv": (".csv", ".csv.gz", ".csv.bz2", ".csv.zst"),
}
_PATTERN = frozenset("*?[")


def list_files(path: str | Path, reader: str) -> tuple[Path, ...]:
    """Return the files that ``path`` stands for, sorted by name.

    Args:
        path: A file, a folder (its files, hidden ones left out) or a glob pattern.
        reader: The reader's name; decides which suffixes count in a folder.

    Text files of 0 bytes are left out where others are not empty: partitions without rows are written like that.

    Raises:
        DataError: Nothing is there, or a file is empty.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        files = _in_folder(place, reader)
    elif place.is_file():
        files = [place]
    elif _PATTERN & set(str(place)):
        files = sorted(Path(found) for found in glob.glob(str(place)) if Path(found).is_file())
        if not files:
            raise DataError(f"no file matches '{path}'")
    else:
        raise DataError(f"'{path}' does not exist")
    if reader != "parquet":
        files = [file for file in files if file.stat().st_size] or files
    for file in files:
        if file.stat().st_size == 0:
            raise DataError(f"'{file}' is empty (0 bytes)")
    return tuple(file.absolute() for file in files)


def no_samples(files: Sequence[Path]) -> DataError:
    """Return the error that none of the files of a split holds a sample."""
    if len(files) == 1:
        return DataError(f"'{files[0]}' is empty: it holds no samples; remove it")
    return DataError(f"all {len(files)} files in '{files[0].parent}' are empty: they hold no samples")


def _in_folder(folder: Path, reader: str) -> list[Path]:
    visible = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith((".", "_")))
    suffixes = _SUFFIXES.get(reader)
    files = visible if suffixes is None else [file for file in visible if file.name.lower().endswith(suffixes)]
    if not files:
        wanted = "" if suffixes is None else f" with a name that ends in {' or '.join(suffixes)}"
        raise DataError(f"the folder '{folder}' is empty: it holds no file{wanted}")
    return files
