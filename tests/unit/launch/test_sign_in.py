"""Workers leave their process ids, and a run waits for those of the one before."""

import os
import subprocess
import sys
import time
from pathlib import Path

from neo.launch.sign_in import await_end_of_workers, sign_in, signed_in


def test_workers_sign_in(tmp_path: Path) -> None:
    assert signed_in(tmp_path) == []
    sign_in(tmp_path, 0)
    sign_in(tmp_path, 1)
    assert signed_in(tmp_path) == [os.getpid()] * 2


def test_a_process_that_does_not_work_in_the_folder_is_not_waited_for(tmp_path: Path) -> None:
    sign_in(tmp_path, 0)
    began = time.monotonic()
    assert await_end_of_workers(tmp_path) == []
    assert time.monotonic() - began < 5


def test_workers_of_an_earlier_run_are_waited_for(tmp_path: Path) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)", str(tmp_path)]
    with subprocess.Popen(sleeper) as worker:
        (tmp_path / "errors").mkdir()
        (tmp_path / "errors" / "pid_0").write_text(str(worker.pid))
        until = time.monotonic() + 10
        while str(tmp_path) not in Path(f"/proc/{worker.pid}/cmdline").read_text():
            assert time.monotonic() < until
        assert await_end_of_workers(tmp_path, patience_s=0.2) == [worker.pid]
        worker.kill()
        assert await_end_of_workers(tmp_path) == []
