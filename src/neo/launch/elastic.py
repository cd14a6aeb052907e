"""The process between the command and its workers: torchrun's engine on one node.

Run as ``python -m neo.launch.elastic RUN_DIR --processes N …`` by ``neo.launch.process``.
"""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from neo.launch.failures import FOLDER, ProcessEnd, write_process_ends
from neo.launch.sign_in import signed_in
from neo.launch.watchdog import start_watchdog

_LOCALHOST = "127.0.0.1"


class RankLogs(LogsSpecs):
    """Rank 0 writes to the terminal, every other rank into ``RUN_DIR/logs/rank_N.{out,err}``."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__()
        self._run_dir = run_dir

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Return the file of each stream, by local rank; an empty name leaves a stream where it is."""
        logs, errors = self._run_dir / "logs", self._run_dir / FOLDER
        logs.mkdir(parents=True, exist_ok=True)
        errors.mkdir(parents=True, exist_ok=True)
        return LogsDest(
            stdouts={rank: str(logs / f"rank_{rank}.out") if rank else "" for rank in envs},
            stderrs={rank: str(logs / f"rank_{rank}.err") if rank else "" for rank in envs},
            tee_stdouts=dict.fromkeys(envs, ""),
            tee_stderrs=dict.fromkeys(envs, ""),
            error_files={rank: str(errors / f"engine_{rank}.json") for rank in envs},
        )

    @property
    def root_log_dir(self) -> str:
        """Where the files lie."""
        return str(self._run_dir / "logs")


def main(arguments: Sequence[str]) -> int:
    """Start the workers, wait for them, and return 0 if all of them ended well, else 1."""
    asked = _parse(arguments)
    start_watchdog(asked.parent_pid)
    # What the engine logs about ending workers would bury the worker's own error; its loggers set their own levels.
    logging.disable(logging.ERROR)
    signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    if asked.preemptible:
        signal.signal(signal.SIGTERM, PassOn(asked.run_dir, asked.processes))
        signals = signals.removeprefix("SIGTERM,")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=asked.processes,
        run_id="neo",
        rdzv_backend="c10d",
        rdzv_endpoint=f"{_LOCALHOST}:0",
        local_addr=_LOCALHOST,
        max_restarts=0,
        logs_specs=RankLogs(asked.run_dir),
        shutdown_timeout=asked.shutdown_timeout,
        signals_to_handle=signals,
    )
    worker = ("-P", "-m", asked.worker, str(asked.run_dir), str(os.getpid()))
    try:
        elastic_launch(config, sys.executable)(*worker)
    except ChildFailedError as error:
        write_process_ends(asked.run_dir, _process_ends(error))
        return 1
    except SignalException:
        return 1
    return 0


class PassOn:
    """Passes SIGTERM on to the workers, which end when they have saved; before all of them are there, ends the run."""

    def __init__(self, run_dir: Path, num_processes: int) -> None:
        self._run_dir = run_dir
        self._num_processes = num_processes

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal.

        Raises:
            SignalException: Not all workers are there; the engine ends those that are.
        """
        pids = signed_in(self._run_dir)
        if len(pids) < self._num_processes:
            raise SignalException("ended before the training", signal.Signals(number))
        for pid in pids:
            os.kill(pid, number)


def _process_ends(error: ChildFailedError) -> Mapping[int, ProcessEnd]:
    return {
        rank: ProcessEnd(rank, failure.exitcode, float(failure.timestamp)) for rank, failure in error.failures.items()
    }


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m neo.launch.elastic", description=__doc__)
    parser.add_argument("run_dir", type=Path, help="folder with resolved.yaml and plan.json")
    parser.add_argument("--processes", type=int, required=True, help="workers to start")
    parser.add_argument("--parent-pid", type=int, required=True, help="end when this is no longer the parent")
    parser.add_argument("--shutdown-timeout", type=int, required=True, help="seconds between SIGTERM and SIGKILL")
    parser.add_argument("--preemptible", action="store_true", help="pass SIGTERM on and let the workers end")
    parser.add_argument("--worker", default="neo.launch.worker", help="module to run as each worker (for tests)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
