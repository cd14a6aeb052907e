"""The files that a command writes into its run folder."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from neo.errors import ConfigError, Finding
from neo.launch.failures import FOLDER
from neo.launch.page import PAGE
from neo.launch.summary import PROGRESS, SUMMARY

_WRITTEN = ("resolved.yaml", "plan.json", "planned.json", "estimate.json", PROGRESS, SUMMARY, PAGE)
_FOLDERS = ("data_schema", "profile", FOLDER)
_LOCK = ".neo.lock"
_KEY = "hydra.run.dir"


def clear(run_dir: Path, *, keep: str | None = None) -> None:
    """Remove what an earlier run in the same folder wrote, so that nothing old is taken for new.

    Args:
        run_dir: The run folder.
        keep: A file that this run reads: a plan of the earlier run may be the one to go on with.
    """
    kept = None if keep is None else Path(keep).expanduser().resolve()
    for name in _WRITTEN:
        if kept is None or (run_dir / name).resolve() != kept:
            (run_dir / name).unlink(missing_ok=True)
    for name in _FOLDERS:
        shutil.rmtree(run_dir / name, ignore_errors=True)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` as JSON for people."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def check_run_dir(overrides: Sequence[str]) -> list[Finding]:
    """Make the folder that ``hydra.run.dir=DIR`` names, and return the finding if that cannot be done."""
    named = [override.partition("=")[2] for override in overrides if override.lstrip("+").startswith(f"{_KEY}=")]
    folder = named[-1].strip("'\"") if named else ""
    if not folder or "${" in folder:
        return []
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / _LOCK).touch()
    except OSError as error:
        return [Finding(_KEY, f"'{folder}' cannot be written: {error.strerror}", "name another folder")]
    return []


@contextmanager
def held(run_dir: Path, *, key: str = _KEY) -> Iterator[None]:
    """Keep the folder, which ``key`` names, for this run alone, until the block or the process ends.

    Raises:
        ConfigError: Another run that still goes on has it.
    """
    with (run_dir / _LOCK).open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            problem = f"'{run_dir}' is in use by the run of process {lock.read().strip() or 'unknown'}"
            raise ConfigError([Finding(key, problem, "wait for its end, or name another folder")]) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
