"""What a run starts from: nothing, a checkpoint that it goes on from, or the weights of one. Torch-free."""

import dataclasses
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from neo.checkpoint.compare import differences, table_entries
from neo.checkpoint.folder import FOLDER, checkpoints_in, find_checkpoint, link_or_copy, verify
from neo.checkpoint.keep import move_aside, remove_drafts
from neo.checkpoint.manifest import read_manifest
from neo.checkpoint.spec import AUTO
from neo.config.resolve import read_resolved
from neo.config.run_config import RunConfig
from neo.data.schema import forget_count
from neo.errors import CheckpointError, ConfigError, Finding
from neo.planner.overrides import table_optimizers
from neo.tables.spec import TableSpec

RESUME, WEIGHTS_FROM = "checkpoint.resume", "checkpoint.weights_from"
_RESOLVED, _SCHEMA = "resolved.yaml", "data_schema"
# What may differ between a run and the one that it goes on from: where the files are, how they are cut into batches.
_FREE = ("path", "val_path", "global_batch_size", "val_samples", "out_of_range", "num_workers")
# Of the data, what the meaning of a row of a table does not depend on.
_ORDER = ("name", "label", "shuffle", "shuffle_window", "limit_samples", "num_samples", "zipf_exponent")


@dataclass(frozen=True)
class Start:
    """Where a run starts.

    Attributes:
        checkpoint: The checkpoint; None for a run that starts from nothing.
        resumes: Whether everything is taken from it, or the weights alone.
    """

    checkpoint: Path | None = None
    resumes: bool = False

    @property
    def key(self) -> str:
        """The key that asked for it."""
        return RESUME if self.resumes else WEIGHTS_FROM

    @property
    def settled(self) -> dict[str, object]:
        """What the workers read in place of ``auto`` and of a folder of checkpoints."""
        path = None if self.checkpoint is None else str(self.checkpoint)
        return {RESUME: path if self.resumes else None, WEIGHTS_FROM: None if self.resumes else path}


def find_start(run: RunConfig, run_dir: Path) -> Start:
    """Find what the run starts from, and compare its settings; nothing is moved yet.

    Raises:
        ConfigError: The checkpoint is of a run that differs; carries every difference.
        CheckpointError: There is no complete checkpoint where one was named.
        OSError: The folder of checkpoints cannot be written.
    """
    folder = run_dir / FOLDER
    remove_drafts(folder)
    start = _find(run, folder)
    if start.checkpoint is not None and (findings := _different_settings(run, start)):
        raise ConfigError(findings)
    return start


def clear_the_way(start: Start, run: RunConfig, run_dir: Path) -> Start:
    """Move aside the checkpoints that the run does not go on from, say what it starts from, and where that is now.

    Raises:
        OSError: The folder of checkpoints cannot be written.
    """
    folder = run_dir / FOLDER
    lies_here = start.checkpoint is not None and start.checkpoint.parent == folder.resolve()
    own = start.resumes and lies_here
    step = read_manifest(start.checkpoint).facts.step if start.checkpoint is not None else 0
    moved = move_aside(folder, newer_than=step if own else None)
    if moved is not None:
        which = f"checkpoints after step {step}" if own else "checkpoints of an earlier run"
        print(f"{which} were moved to {moved}")
        if start.checkpoint is not None and lies_here and not own:
            start = dataclasses.replace(start, checkpoint=moved.resolve() / start.checkpoint.name)
    if start.checkpoint is not None:
        print(f"{'goes on from' if start.resumes else 'starts with the weights of'} {start.checkpoint} (step {step})")
    elif run.checkpoint.resume == AUTO:
        print(f"{RESUME}=auto: no complete checkpoint in {folder}; a fresh start")
    return start


def _find(run: RunConfig, folder: Path) -> Start:
    asked = run.checkpoint
    if asked.weights_from is not None:
        return Start(find_checkpoint(Path(asked.weights_from).expanduser()).resolve())
    if asked.resume == AUTO:
        newest = _newest_undamaged(folder)
        return Start() if newest is None else Start(newest.resolve(), resumes=True)
    if asked.resume is not None:
        return Start(find_checkpoint(Path(asked.resume).expanduser()).resolve(), resumes=True)
    return Start()


def _newest_undamaged(folder: Path) -> Path | None:
    """Return the newest checkpoint whose files are what was written, and say which newer ones are passed over."""
    for path in reversed(checkpoints_in(folder)):
        try:
            verify(path)
        except CheckpointError as error:
            print(f"{RESUME}=auto passes over a checkpoint: {error}")
        else:
            return path
    return None


def take_schema(start: Start, folder: Path) -> bool:
    """Give a run what its checkpoint's run had learned from the data; False if there is nothing to take."""
    if start.checkpoint is None or not (start.checkpoint / _SCHEMA).is_dir():
        return False
    shutil.copytree(start.checkpoint / _SCHEMA, folder, copy_function=link_or_copy)
    if not start.resumes:  # The data may be other data: only what ids and numbers mean is taken over.
        forget_count(folder)
    return True


def require_tables(start: Start, run: RunConfig, tables: Mapping[str, TableSpec]) -> None:
    """Compare the tables of the run with the checkpoint's before any worker is started.

    Args:
        start: What the run starts from.
        run: The configuration.
        tables: The tables by plan key.

    Raises:
        ConfigError: They differ; carries every difference.
    """
    if start.checkpoint is None:
        return
    own, _ = table_optimizers(run.optim, tables)
    entries = table_entries(tables, {key: own.get(key, run.optim.sparse) for key in tables})
    saved = read_manifest(start.checkpoint).tables
    found = differences(saved, entries, weights_only=not start.resumes)
    if found:
        fix = _weights_alone(start) if not differences(saved, entries, weights_only=True) else ""
        raise ConfigError([Finding(start.key, f"'{start.checkpoint}': {line}", fix) for line in found])


def _different_settings(run: RunConfig, start: Start) -> list[Finding]:
    """Return the settings in which the run differs from the one that wrote the checkpoint, as far as they matter."""
    assert start.checkpoint is not None
    written = start.checkpoint / _RESOLVED
    if not written.is_file():
        if not start.resumes:
            return []
        problem = f"'{start.checkpoint}' holds no {_RESOLVED}: it was not written by a run of this command"
        return [Finding(RESUME, problem, _weights_alone(start))]
    then, now = dict(_settings(read_resolved(written), start)), dict(_settings(run, start))
    fix = _weights_alone(start) if start.resumes else ""
    return [
        Finding(key, f"{_said(now.get(key))} here, but {_said(then.get(key))} in '{start.checkpoint}'", fix)
        for key in sorted({*then, *now})
        if then.get(key) != now.get(key)
    ]


def _weights_alone(start: Start) -> str:
    return f"take the same, or the weights alone with {WEIGHTS_FROM}={start.checkpoint} in place of {RESUME}"


def _settings(run: RunConfig, start: Start) -> Iterator[tuple[str, Any]]:
    free = (*_FREE, *(() if start.resumes else _ORDER))
    for name, value in dataclasses.asdict(run.data).items():
        if name not in free:
            yield f"data.{name}", value
    if start.resumes:
        yield "seed", run.seed
        yield from _flat("model", dataclasses.asdict(run.model))
        optim = dataclasses.asdict(run.optim)
        optim["sparse"]["tables"] = optim.pop("tables")
        yield from _flat("optim", optim)


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}.{name}", value)
        else:
            yield f"{prefix}.{name}", value


def _said(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{','.join(map(_said, value))}]"
    if isinstance(value, Enum):
        value = value.value
    return "null" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
