"""One rank is killed, holds another plan, or meets NaN: the run ends soon, says why, and leaves no process."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration.fault_plugin import VARIABLE

ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0
OVERRIDES = (
    "trainer.devices=2",
    "trainer.accelerator=cpu",
    "trainer.max_steps=1000000",
    "trainer.max_epochs=null",
    "trainer.log_every_n_steps=1",
    "model.num_embeddings=[50,60,70]",
    "data.num_samples=2000",
    "data.val_samples=0",
    "data.global_batch_size=100",
    "sharding=table_wise",
)


@dataclass(frozen=True)
class Run:
    """A running ``train.py``."""

    process: "subprocess.Popen[str]"
    run_dir: Path

    def ended(self) -> tuple[int, str]:
        """Wait for the end; return the exit code and what was written to stderr."""
        _, errors = self.process.communicate(timeout=2 * LIMIT_S)
        return self.process.returncode, errors

    def worker(self, rank: int) -> int:
        """Return the process of a rank."""
        (found,) = (pid for pid in self.left() if _variable(pid, "RANK") == str(rank))
        return found

    def left(self) -> list[int]:
        """Return the processes that work on this run, the command itself left out."""
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        return [pid for pid in pids if pid != self.process.pid and str(self.run_dir) in _read(pid, "cmdline")]

    def wait_for_steps(self) -> None:
        """Return when metrics of the first hundred steps are on disk."""
        metrics, until = self.run_dir / "logs" / "metrics.csv", time.monotonic() + LIMIT_S
        while not (metrics.is_file() and metrics.read_text().count("\n") > 50):
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < until, "no training step was logged"
            time.sleep(0.1)


def _read(pid: int, name: str) -> str:
    """Return a file of a living process, empty where there is none (any more)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return "" if state == "Z" else Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def _variable(pid: int, name: str) -> str:
    values = dict(entry.partition("=")[::2] for entry in _read(pid, "environ").split("\0"))
    return values.get(name, "")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a folder in which ``fault_plugin`` is installed as a package with an entry point."""
    metadata = tmp_path / "site" / "faults-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: faults\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[neo.plugins]\nfaults = fault_plugin:plugin\n")
    (tmp_path / "site" / "fault_plugin.py").write_text((Path(__file__).parent / "fault_plugin.py").read_text())
    return tmp_path / "site"


def start(folder: Path, package: Path, fault: str = "") -> Run:
    """Start ``train.py`` with two ranks."""
    run_dir = folder / "run"
    path = os.pathsep.join([str(ROOT / "src"), str(package)])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, VARIABLE: fault}
    command = [sys.executable, str(ROOT / "train.py"), *OVERRIDES, f"hydra.run.dir={run_dir}"]
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    return Run(process, run_dir)


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    """Collect runs that are ended after the test, whatever came of it."""
    started: list[Run] = []
    yield started
    for run in started:
        run.process.kill()  # its workers notice and end, too
        run.process.communicate()


def _require_failed(run: Run, message: str, since_s: float | None = None) -> None:
    """Check how the run ended, within the limit since its workers were started or since ``since_s``."""
    code, errors = run.ended()
    elapsed_s = time.time() - (since_s or (run.run_dir / "plan.json").stat().st_mtime)
    assert code == 1, errors
    assert re.fullmatch(message, errors.rstrip().splitlines()[-1]), errors
    assert elapsed_s < LIMIT_S
    assert run.left() == []
    assert '"status": "failed"' in (run.run_dir / "summary.json").read_text()


def test_a_rank_that_is_killed_in_mid_run_ends_the_run(tmp_path: Path, package: Path, runs: list[Run]) -> None:
    run = start(tmp_path, package)
    runs.append(run)
    run.wait_for_steps()
    assert len(run.left()) >= 2
    os.kill(run.worker(1), signal.SIGKILL)
    _require_failed(run, r"rank 1 was killed by SIGKILL; did the host run out of memory\?", time.time())


def test_r28_a_rank_with_two_tables_swapped_ends_the_run(tmp_path: Path, package: Path, runs: list[Run]) -> None:
    runs.append(start(tmp_path, package, "plan:1"))
    _require_failed(
        runs[0],
        r"rank [01] failed: the ranks do not hold the same run, so training them together would give a wrong model: "
        r"plan: \w{16} on rank 0 but \w{16} on rank 1; "
        r"start all ranks from one run folder, with the same files and the same command",
    )


FEEDS = {
    "dense:1:7": r"rank 1 failed: the training loss of step 7 is not finite on rank 1: "
    r"stage data: the dense column 'dense_2' holds NaN in 1 of 50 samples \(first: sample 5\); check the data",
    "weights:1:4": r"rank ([01]) failed: the training loss of step 4 is not finite on rank \1: "
    r"stage lookup( or output_dist)?: table 'sparse_1', feature 'sparse_1': \d+ of 50 output rows hold NaN "
    r"\(first: row \d+\)"
    r"(; row 0 of the weights of table 'sparse_1' holds NaN)?; "
    r"lower optim.sparse.lr or optim.dense.lr, or check the data",
}


@pytest.mark.parametrize("fault", FEEDS)
def test_nan_ends_the_run_and_its_source_is_named(tmp_path: Path, package: Path, runs: list[Run], fault: str) -> None:
    runs.append(start(tmp_path, package, fault))
    _require_failed(runs[0], FEEDS[fault])
