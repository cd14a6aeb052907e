"""Folders of checkpoints, torch-free: which are complete, which is the newest, and whether one is undamaged."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from neo.checkpoint.manifest import MANIFEST, FileEntry, Manifest, read_manifest
from neo.errors import CheckpointError

FOLDER = "checkpoints"
_NAME = re.compile(r"step_(\d{6,})")
_BLOCK_BYTES = 1 << 22


def step_name(step: int) -> str:
    """Return the folder name of the checkpoint of a step."""
    return f"step_{step:06d}"


def step_of(path: Path) -> int | None:
    """Return the step that the name of a checkpoint's folder says, None if it is no such name."""
    match = _NAME.fullmatch(path.name)
    return None if match is None else int(match[1])


def checkpoints_in(folder: Path) -> list[Path]:
    """Return everything in a folder that is named like a checkpoint, damaged or not, by step, oldest first."""
    if not folder.is_dir():
        return []
    found = [(step, path) for path in folder.iterdir() if (step := step_of(path)) is not None]
    return [path for _, path in sorted(found)]


def complete_checkpoints(folder: Path) -> list[Path]:
    """Return the complete checkpoints in a folder, by step, oldest first; none if there is no such folder."""
    return [path for path in checkpoints_in(folder) if is_complete(path)]


def is_complete(path: Path) -> bool:
    """Return whether a checkpoint has all its files in their sizes; the content is not read."""
    try:
        return not _wrong_sizes(path, read_manifest(path).files)
    except CheckpointError:
        return False


def find_checkpoint(path: Path) -> Path:
    """Return the checkpoint that a path means: itself, or the newest complete one of a folder or a run folder.

    Raises:
        CheckpointError: There is no such path, the checkpoint is incomplete, or the folder holds no complete one.
    """
    if not path.exists():
        raise CheckpointError(f"'{path}' does not exist; name a checkpoint, a folder of them, or a run folder")
    if (path / MANIFEST).exists() or _NAME.fullmatch(path.name):
        wrong = _wrong_sizes(path, read_manifest(path).files)
        if wrong:
            raise CheckpointError(f"'{path}' is damaged: {wrong[0]}; take another checkpoint")
        return path
    for folder in (path / FOLDER, path):
        if found := complete_checkpoints(folder):
            return found[-1]
    raise CheckpointError(f"'{path}' holds no complete checkpoint")


def verify(path: Path) -> Manifest:
    """Read every file of a checkpoint and return its manifest.

    Raises:
        CheckpointError: A file is missing, cut off or changed; names it.
    """
    manifest = read_manifest(path)
    for wrong in wrong_files(path, manifest.files):
        raise CheckpointError(f"'{path}' is damaged: {wrong}; take another checkpoint")
    return manifest


def wrong_files(path: Path, files: Mapping[str, FileEntry]) -> Iterator[str]:
    """Say of each file of a checkpoint that is missing, cut off or changed what is wrong with it."""
    yield from _wrong_sizes(path, files)
    for name, entry in files.items():
        if (path / name).is_file() and file_entry(path / name) != entry:
            yield f"the content of {name} has changed"


def file_entry(path: Path) -> FileEntry:
    """Return size and checksum of a file.

    Raises:
        CheckpointError: It cannot be read.
    """
    digest = hashlib.sha256()
    num_bytes = 0
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
                num_bytes += len(block)
    except OSError as error:
        raise CheckpointError(f"'{path}' cannot be read: {error.strerror}") from None
    return FileEntry(num_bytes, digest.hexdigest())


def _wrong_sizes(path: Path, files: Mapping[str, FileEntry]) -> list[str]:
    wrong = []
    for name, entry in files.items():
        try:
            num_bytes = (path / name).stat().st_size
        except OSError:  # Another process may be removing an old checkpoint while this one looks.
            wrong.append(f"{name} is missing")
            continue
        if num_bytes != entry.num_bytes:
            wrong.append(f"{name} has {num_bytes} bytes, not {entry.num_bytes}")
    return wrong


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Give a file a second name, or copy it where the file system cannot.

    For what is never changed in place, only replaced: large vocabularies then share their bytes.
    """
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
