"""The parent's side of a run: start the engine, pass signals on, wait, and say what went wrong. Torch-free."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

import neo
from neo.launch.failures import FOLDER, describe_failure
from neo.launch.spec import LaunchSpec

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ENGINE_MARGIN_S = 10
_POLL_S = 0.2


@dataclass(frozen=True)
class Outcome:
    """How the workers of a run ended.

    Attributes:
        done: Whether all of them ended well.
        interrupted_by: The signal that the parent received, if one ended the run.
        message: What to print last; empty if all went well.
    """

    done: bool
    interrupted_by: str = ""
    message: str = ""


def run_workers(
    run_dir: Path,
    *,
    num_processes: int,
    launch: LaunchSpec,
    worker: str = "neo.launch.worker",
    preemptible: bool = False,
) -> Outcome:
    """Start ``num_processes`` workers on this host and wait until none is left.

    Args:
        run_dir: Folder with ``resolved.yaml`` and ``plan.json``.
        num_processes: Ranks.
        launch: Threads and patience.
        worker: The module that each worker runs; tests pass theirs.
        preemptible: Whether the workers are told of SIGTERM and left to end by themselves, as they do when they have
            saved a checkpoint; that is a good end. Else, and for every other signal, the workers are ended.
    """
    shutil.rmtree(run_dir / FOLDER, ignore_errors=True)
    command = [sys.executable, "-P", "-m", "neo.launch.elastic", str(run_dir.absolute()), "--worker", worker]
    command += ["--processes", str(num_processes), "--parent-pid", str(os.getpid())]
    command += ["--shutdown-timeout", str(launch.shutdown_timeout_s), *(["--preemptible"] if preemptible else [])]
    environment = _environment(num_processes, launch)
    received = _Received()
    with _noting_signals(received):
        # A session of its own: Ctrl-C reaches the workers once, through this process.
        engine = subprocess.Popen(command, env=environment, start_new_session=True)
        code = _wait(engine, received, launch, preemptible=preemptible)
    may_end_well = received.names[:1] in ([], ["SIGTERM"] if preemptible else [])
    if received.names and not (may_end_well and code == 0):
        failure = describe_failure(run_dir).rpartition("\n\n")[2] if may_end_well else ""
        why = f"; {failure}" if " failed: " in failure else ""  # It may have failed to save.
        return Outcome(False, received.names[0], f"ended by {received.names[0]}{why}")
    if code == 0:
        shutil.rmtree(run_dir / FOLDER, ignore_errors=True)
        return Outcome(True)
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    fallback = f"the launching process {how}; see {run_dir / 'logs'}"
    return Outcome(False, message=describe_failure(run_dir) or fallback)


@dataclass
class _Received:
    names: list[str] = field(default_factory=list)
    first_at: float = 0.0


@contextmanager
def _noting_signals(received: _Received) -> Iterator[None]:
    def note(number: int, frame: FrameType | None) -> None:
        received.names.append(signal.Signals(number).name)
        received.first_at = received.first_at or time.monotonic()

    with hearing_signals(note):
        yield


@contextmanager
def hearing_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let ``handler`` hear what ends a command; what is ignored (nohup, a shell's background job) stays ignored."""
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _wait(engine: "subprocess.Popen[bytes]", received: _Received, launch: LaunchSpec, *, preemptible: bool) -> int:
    """Wait for the engine; pass a signal on, and on a second one kill it (its workers notice and end).

    A preemptible run's engine lets the workers go on after SIGTERM, and ends them after SIGINT; another one ends them
    after SIGTERM.
    """
    told, patience_s = False, launch.shutdown_timeout_s + _ENGINE_MARGIN_S
    while True:
        try:
            return engine.wait(timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            if not received.names:
                continue
        if not told:
            leaves = received.names[0] == "SIGTERM" or not preemptible
            engine.send_signal(signal.SIGTERM if leaves else signal.SIGINT)
            patience_s = launch.preemption_timeout_s if leaves and preemptible else patience_s
            told = True
        elif len(received.names) > 1 or time.monotonic() - received.first_at > patience_s:
            engine.kill()


def become_worker(run_dir: Path, variables: Mapping[str, str]) -> NoReturn:
    """Turn this process into a worker of the job that started it; its process id stays.

    Args:
        run_dir: The run folder.
        variables: What torch.distributed has to find in the environment.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    environment = environment_with_source(dict(os.environ)) | dict(variables)
    worker = [sys.executable, "-P", "-m", "neo.launch.worker", str(run_dir.absolute())]
    os.execve(sys.executable, worker, environment)


def _environment(num_processes: int, launch: LaunchSpec) -> dict[str, str]:
    environment = environment_with_source(dict(os.environ))
    if launch.threads_per_worker is not None:
        environment["OMP_NUM_THREADS"] = str(launch.threads_per_worker)
    elif not environment.get("OMP_NUM_THREADS"):
        environment["OMP_NUM_THREADS"] = str(max(1, _num_cores() // num_processes))
    return environment


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def environment_with_source(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment with this very neo first on the path of Python processes started with it."""
    source = str(Path(neo.__file__).parents[1])
    others = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", source)]
    return environment | {"PYTHONPATH": os.pathsep.join([source, *others])}
