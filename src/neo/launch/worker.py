"""One worker: reads the run folder, trains, and leaves so that no other rank has to wait for it.

Run as ``python -m neo.launch.worker RUN_DIR [PARENT_PID]`` with torchrun's environment.
"""

import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from neo.launch.failures import report_to_torchrun, write_rank_failure
from neo.launch.sign_in import sign_in
from neo.launch.summary import SUMMARY, Status, complete_summary
from neo.launch.watchdog import start_watchdog


def main(arguments: Sequence[str], body: Callable[[Path], None] | None = None) -> None:
    """Run ``body`` (by default: train) as one rank.

    Args:
        arguments: The run folder, and the launching process if it is neo's own.
        body: What to do in the run folder; tests pass theirs.
    """
    run_dir = Path(arguments[0])
    launched_by_neo = len(arguments) > 1
    if launched_by_neo:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background jobs would ignore it.
        sign_in(run_dir, _rank())
    start_watchdog(int(arguments[1]) if launched_by_neo else os.getppid())
    try:
        (_train if body is None else body)(run_dir)
        _end_well()
        if not launched_by_neo and _rank() == 0:
            complete_summary(run_dir, Status.DONE)
    except BaseException as error:
        _fail(run_dir, error, launched_by_neo=launched_by_neo)


def _train(run_dir: Path) -> None:
    from neo.config.plugins import load_plugins
    from neo.config.resolve import read_resolved

    load_plugins()
    config = read_resolved(run_dir / "resolved.yaml")
    if config.launch.threads_per_worker is not None:
        importlib.import_module("torch").set_num_threads(config.launch.threads_per_worker)
    run_training = importlib.import_module("neo.strategy.run").run_training
    run_training(config, run_dir=run_dir)


def _end_well() -> None:
    """Leave the process group together: without it gloo aborts now and then at exit."""
    if "torch.distributed" not in sys.modules:
        return
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def _fail(run_dir: Path, error: BaseException, *, launched_by_neo: bool) -> NoReturn:
    """Report and leave at once: tearing down a process group would wait for ranks that wait for this one."""
    try:
        failure = write_rank_failure(run_dir, _rank(), error)
        report = failure.report()
        if not launched_by_neo:
            report_to_torchrun(failure.error, failure.message, failure.traceback)
            if not (run_dir / SUMMARY).exists():  # The first failing rank says why; nobody else is left to do it.
                complete_summary(run_dir, Status.FAILED, error=f"rank {failure.rank} failed: {failure.message}")
        # Rank 0 of neo's own launch writes to the terminal, where the launcher prints the first cause at the end.
        if not launched_by_neo or failure.rank != 0:
            print(report, file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


if __name__ == "__main__":
    main(sys.argv[1:])
