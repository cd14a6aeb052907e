"""R36 and its kind: however a rank ends, all ranks end, soon, and the first cause is told last."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing import SignalException

from neo.launch.elastic import PassOn
from neo.launch.process import Outcome, run_workers
from neo.launch.spec import LaunchSpec

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCE), str(HERE)]))


def _run(run_dir: Path, script: Mapping[str, object], threads: int | None = 1) -> tuple[Outcome, float]:
    (run_dir / "script.json").write_text(json.dumps(script))
    began = time.monotonic()
    outcome = run_workers(
        run_dir, num_processes=2, launch=LaunchSpec(threads, shutdown_timeout_s=5), worker="launch_worker"
    )
    return outcome, time.monotonic() - began


def _pids(run_dir: Path) -> list[int]:
    return [int(path.read_text()) for path in sorted(run_dir.glob("pid_*"))]


def _assert_gone(run_dir: Path, within_s: float = 0.0) -> None:
    until = time.monotonic() + within_s
    pids = _pids(run_dir)
    assert len(pids) == 2
    while any(_alive(pid) for pid in pids):
        assert time.monotonic() < until, f"still alive: {[pid for pid in pids if _alive(pid)]}"
        time.sleep(0.1)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # Orphans in a container without an init process stay as zombies.


def test_good_run_shows_rank_0_and_logs_the_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outcome, _ = _run(tmp_path, {})
    assert outcome == Outcome(done=True)
    assert capfd.readouterr().out == "rank 0 sees 2 ranks, 1 threads\n"
    assert (tmp_path / "logs" / "rank_1.out").read_text() == "rank 1 sees 2 ranks, 1 threads\n"
    _assert_gone(tmp_path)


def test_r36_first_failing_rank_is_told_and_all_ranks_end(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outcome, seconds = _run(tmp_path, {"0": "wait", "1": "raise"})
    assert not outcome.done
    assert outcome.message.splitlines()[-1] == "rank 1 failed: ValueError: table 'user_id' is on fire on rank 1"
    assert "Traceback (most recent call last)" in outcome.message
    assert "launch_worker.py" in outcome.message
    assert seconds < 60
    _assert_gone(tmp_path)
    shown = capfd.readouterr()
    assert "torch.distributed.elastic" not in shown.err + shown.out


def test_r36_a_killed_rank_is_named_with_its_signal(tmp_path: Path) -> None:
    outcome, seconds = _run(tmp_path, {"0": "wait", "1": "kill"})
    assert outcome.message == "rank 1 was killed by SIGKILL; did the host run out of memory?"
    assert seconds < 60
    _assert_gone(tmp_path)


def test_r36_a_rank_that_leaves_without_a_word_is_named(tmp_path: Path) -> None:
    outcome, _ = _run(tmp_path, {"0": "sleep", "1": "exit"})
    assert outcome.message == "rank 1 ended with exit code 7 and left no error"
    _assert_gone(tmp_path)


def _start_parent(run_dir: Path, action: str = "sleep", *flags: str) -> "subprocess.Popen[str]":
    (run_dir / "script.json").write_text(json.dumps({"0": action, "1": action}))
    parent = subprocess.Popen(
        [sys.executable, "-m", "launch_parent", str(run_dir), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while len(_pids(run_dir)) < 2 or not all(path.read_text() for path in run_dir.glob("pid_*")):
        assert time.monotonic() < until, "workers did not start"
        time.sleep(0.1)
    return parent


def test_workers_end_when_the_parent_is_killed(tmp_path: Path) -> None:
    parent = _start_parent(tmp_path)
    parent.kill()
    parent.wait(timeout=10)
    _assert_gone(tmp_path, within_s=5)
    assert parent.stdout is not None
    parent.stdout.close()


@pytest.mark.parametrize(("number", "flags"), [(signal.SIGINT, ["preemptible"]), (signal.SIGTERM, [])])
def test_a_signal_ends_all_ranks_and_is_told(tmp_path: Path, number: signal.Signals, flags: list[str]) -> None:
    parent = _start_parent(tmp_path, "sleep", *flags)
    parent.send_signal(number)
    shown, _ = parent.communicate(timeout=30)
    assert f"interrupted_by='{number.name}'" in shown
    assert f"ended by {number.name}" in shown
    assert "death signal" not in shown
    _assert_gone(tmp_path)


def test_a_preemptible_run_is_told_of_sigterm_and_ends_by_itself(tmp_path: Path) -> None:
    parent = _start_parent(tmp_path, "leave", "preemptible")
    until = time.monotonic() + 60
    while len(list(tmp_path.glob("listens_*"))) < 2:
        assert time.monotonic() < until, "workers do not listen"
        time.sleep(0.05)
    parent.send_signal(signal.SIGTERM)
    shown, _ = parent.communicate(timeout=30)
    assert len(list(tmp_path.glob("left_*"))) == 2
    assert str(Outcome(done=True)) in shown
    _assert_gone(tmp_path)


def test_sigterm_before_all_workers_are_there_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "errors").mkdir()
    (tmp_path / "errors" / "pid_0").write_text(str(os.getpid()))
    with pytest.raises(SignalException, match="ended before the training"):
        PassOn(tmp_path, num_processes=2)(signal.SIGTERM, None)
