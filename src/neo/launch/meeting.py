"""How the ranks of a job that torchrun or Slurm started wait for rank 0 to fill their run folder. Torch-free.

Rank 0 may take long (it learns from the data meanwhile), so it shows a sign of life; ranks that see none for a while
give up instead of waiting for a process that is gone.
"""

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from neo.errors import NeoError
from neo.launch.environment import RankEnvironment

_POLL_S = 0.1
_BEAT_S = 2.0
_SILENCE_S = 45.0  # Without a sign of life; a shared file system may show it late.
_ATTEMPT = ("MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


def announce(run_dir: Path, ranks: RankEnvironment, exit_code: int) -> None:
    """Tell the other ranks that the folder is ready (0), or with which exit code to leave."""
    _replace(_path(run_dir, ranks), str(exit_code))


@contextmanager
def signs_of_life(run_dir: Path, ranks: RankEnvironment) -> Iterator[None]:
    """Show the waiting ranks that this one is at work."""
    done = threading.Event()
    path = _beats(run_dir, ranks)

    def beat() -> None:
        count = 0
        while not done.is_set():
            _replace(path, str(count))
            count += 1
            done.wait(_BEAT_S)

    thread = threading.Thread(target=beat, name="neo-signs-of-life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        path.unlink(missing_ok=True)


def forget(run_dir: Path) -> None:
    """Remove what earlier jobs announced in this folder."""
    for pattern in ("ready-*.txt", "ready-*.beat"):
        for old in run_dir.glob(pattern):
            old.unlink(missing_ok=True)


def await_announcement(run_dir: Path, ranks: RankEnvironment, *, silence_s: float = _SILENCE_S) -> int:
    """Return what rank 0 announced.

    Raises:
        NeoError: Rank 0 showed no sign of life for ``silence_s``.
    """
    path, beats = _path(run_dir, ranks), _beats(run_dir, ranks)
    seen, until = "", time.monotonic() + silence_s
    while time.monotonic() < until:
        if path.is_file():
            return int(path.read_text(encoding="utf-8"))
        if (beat := _read(beats)) != seen:
            seen, until = beat, time.monotonic() + silence_s
        time.sleep(_POLL_S)
    raise NeoError(
        f"rank {ranks.rank}: rank 0 has shown no sign of life in {run_dir.absolute()} for {silence_s:.0f} s; it has "
        f"ended (see its own message), or the nodes do not see one file system: name a shared folder with "
        f"hydra.run.dir=DIR"
    )


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".tmp")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _beats(run_dir: Path, ranks: RankEnvironment) -> Path:
    return _path(run_dir, ranks).with_suffix(".beat")


def _path(run_dir: Path, ranks: RankEnvironment) -> Path:
    attempt = "-".join([ranks.job, *(os.environ.get(name, "0") for name in _ATTEMPT)])
    return run_dir / f"ready-{re.sub(r'[^A-Za-z0-9_.-]', '-', attempt)}.txt"
