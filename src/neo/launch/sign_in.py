"""Which workers have begun to work in a run folder: each leaves its process id there. Torch-free."""

import os
import time
from pathlib import Path

from neo.launch.failures import FOLDER

_POLL_S = 0.1


def sign_in(run_dir: Path, rank: int) -> None:
    """Leave this process's id for the engine, which does not learn it from the library that starts workers."""
    path = run_dir / FOLDER / f"pid_{rank}"
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}")
    draft.write_text(str(os.getpid()), encoding="utf-8")
    draft.replace(path)


def signed_in(run_dir: Path) -> list[int]:
    """Return the process ids of the workers on this host that have begun to work in the run folder."""
    return [int(path.read_text(encoding="utf-8")) for path in sorted((run_dir / FOLDER).glob("pid_*"))]


def await_end_of_workers(run_dir: Path, *, patience_s: float = 10.0) -> list[int]:
    """Wait for workers of an earlier run in this folder, whose launcher was killed, to notice that and end.

    Returns:
        Those that are still there.
    """
    until = time.monotonic() + patience_s
    while (left := [pid for pid in signed_in(run_dir) if _works_in(pid, run_dir)]) and time.monotonic() < until:
        time.sleep(_POLL_S)
    return left


def _works_in(pid: int, run_dir: Path) -> bool:
    """Return whether a process is alive and has the run folder on its command line: ids are given away again."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return os.fsencode(run_dir.absolute()) in line.split(b"\0")
