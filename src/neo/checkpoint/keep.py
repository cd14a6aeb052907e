"""Which checkpoints of a run stay, torch-free: the newest, the best, links to both; nothing else lies around.

One process at a time works on a folder. Whatever it is killed at, the complete checkpoints stay complete.
"""

import contextlib
import math
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from neo.checkpoint.folder import checkpoints_in, complete_checkpoints, step_name, step_of
from neo.checkpoint.manifest import MANIFEST, read_manifest, write_manifest
from neo.checkpoint.spec import MONITORS

LAST, BEST = "last", "best"
_DRAFT = re.compile(r"\.(step_\d{6,})\.(saving|old|removing|manifest)")


@dataclass(frozen=True)
class Keep:
    """How many checkpoints stay.

    Attributes:
        last: Of the newest; None for all.
        best: Of the best by ``monitor``.
        monitor: A name in ``MONITORS``, or None.
    """

    last: int | None
    best: int
    monitor: str | None


def ranked(folder: Path, monitor: str) -> list[tuple[Path, float]]:
    """Return the complete checkpoints with a value of ``monitor``, the best first, the newer first among equals."""
    found = []
    for path in reversed(complete_checkpoints(folder)):
        val = read_manifest(path).facts.val
        value = None if val is None else val.get(monitor)
        if value is not None and math.isfinite(value):
            found.append((path, value))
    return sorted(found, key=lambda entry: entry[1], reverse=MONITORS[monitor])


def would_be_kept(folder: Path, keep: Keep, value: float | None) -> bool:
    """Return whether a checkpoint with this value of the monitor would be among the best."""
    if keep.monitor is None or value is None or not math.isfinite(value):
        return False
    best = ranked(folder, keep.monitor)[: keep.best]
    if len(best) < keep.best:
        return True
    worst = best[-1][1]
    return value > worst if MONITORS[keep.monitor] else value < worst


def tidy(folder: Path, keep: Keep) -> None:
    """Let ``last`` and ``best`` point at the newest and the best, then remove what is not kept.

    Raises:
        OSError: The folder cannot be written.
    """
    complete = complete_checkpoints(folder)
    best = [] if keep.monitor is None else [path for path, _ in ranked(folder, keep.monitor)[: keep.best]]
    if complete:
        _link(folder / LAST, complete[-1].name)
    if best:
        _link(folder / BEST, best[0].name)
    newest = complete if keep.last is None else complete[-keep.last :]
    for path in complete:
        if path not in newest and path not in best:
            going = path.with_name(f".{path.name}.removing")
            path.rename(going)
            shutil.rmtree(going, ignore_errors=True)
    for name in (LAST, BEST):
        if (folder / name).is_symlink() and not (folder / name).exists():
            (folder / name).unlink()


def remove_drafts(folder: Path) -> None:
    """Remove what a killed run left half written or half removed; a checkpoint that was being replaced comes back.

    Raises:
        OSError: The folder cannot be written.
    """
    for path in sorted(folder.glob(".step_*")) if folder.is_dir() else []:
        if (match := _DRAFT.fullmatch(path.name)) is None:
            continue
        if match[2] == "old" and not (folder / match[1]).exists():
            path.rename(folder / match[1])
        else:
            shutil.rmtree(path, ignore_errors=True)


def record_validation(folder: Path, step: int, val: Mapping[str, float | None]) -> None:
    """Add the metrics of a validation to the checkpoint of the same step, if there is a complete one.

    Raises:
        OSError: The folder cannot be written.
    """
    path = folder / step_name(step)
    if path not in complete_checkpoints(folder):
        return
    manifest = read_manifest(path)
    with_val = replace(manifest, facts=replace(manifest.facts, val=dict(val)))
    draft = folder / f".{path.name}.manifest"
    draft.mkdir(exist_ok=True)
    write_manifest(draft, with_val)
    (draft / MANIFEST).replace(path / MANIFEST)
    draft.rmdir()


def move_aside(folder: Path, *, newer_than: int | None = None) -> Path | None:
    """Move checkpoints, damaged ones too, to the first free ``checkpoints_before_N`` beside their folder; return it.

    Args:
        folder: The folder of checkpoints.
        newer_than: Move only those of later steps; None moves the whole folder.

    Returns:
        None if there was nothing to move.

    Raises:
        OSError: The folder cannot be written.
    """
    moved = [path for path in checkpoints_in(folder) if newer_than is None or (step_of(path) or 0) > newer_than]
    if not moved:
        return None
    number = 1
    while (target := folder.with_name(f"{folder.name}_before_{number}")).exists():
        number += 1
    if newer_than is None:
        folder.rename(target)
        return target
    target.mkdir()
    for path in moved:
        path.rename(target / path.name)
    return target


def _link(link: Path, name: str) -> None:
    """Point a relative link at a neighbour, replacing an older one in one step."""
    draft = link.with_name(f".{link.name}.link")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    draft.symlink_to(name)
    os.replace(draft, link)
