"""How the ranks of a job that torchrun or Slurm started wait for rank 0 to fill their run folder. Torch-free."""

import os
import re
import time
from pathlib import Path

from neo.errors import NeoError
from neo.launch.environment import RankEnvironment

_POLL_S = 0.1
_PATIENCE_S = 1800.0  # The learning pass over the data happens meanwhile.
_ATTEMPT = ("MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


def announce(run_dir: Path, ranks: RankEnvironment, exit_code: int) -> None:
    """Tell the other ranks that the folder is ready (0), or with which exit code to leave."""
    path = _path(run_dir, ranks)
    draft = path.with_suffix(".tmp")
    draft.write_text(str(exit_code), encoding="utf-8")
    draft.replace(path)


def forget(run_dir: Path) -> None:
    """Remove what earlier jobs announced in this folder."""
    for old in run_dir.glob("ready-*.txt"):
        old.unlink(missing_ok=True)


def await_announcement(run_dir: Path, ranks: RankEnvironment, *, patience_s: float = _PATIENCE_S) -> int:
    """Return what rank 0 announced.

    Raises:
        NeoError: Nothing was announced in time.
    """
    path, until = _path(run_dir, ranks), time.monotonic() + patience_s
    while time.monotonic() < until:
        if path.is_file():
            return int(path.read_text(encoding="utf-8"))
        time.sleep(_POLL_S)
    raise NeoError(
        f"rank {ranks.rank}: rank 0 has not filled {run_dir.absolute()} within {patience_s:.0f} s; "
        "all nodes have to see one file system: name a shared folder with hydra.run.dir=DIR"
    )


def _path(run_dir: Path, ranks: RankEnvironment) -> Path:
    attempt = "-".join([ranks.job, *(os.environ.get(name, "0") for name in _ATTEMPT)])
    return run_dir / f"ready-{re.sub(r'[^A-Za-z0-9_.-]', '-', attempt)}.txt"
