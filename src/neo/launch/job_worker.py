"""One worker of ``neo eval``, ``predict`` or ``export``: reads its job in the run folder and does its part.

Run as ``python -m neo.launch.job_worker RUN_DIR PARENT_PID`` with torchrun's environment.
"""

import importlib
import sys
from pathlib import Path

from neo.checkpoint.job import Task, read_job
from neo.launch.worker import main

_BODIES = {
    Task.EVAL: "neo.strategy.evaluate:run_evaluation",
    Task.PREDICT: "neo.strategy.predict:run_prediction",
    Task.EXPORT: "neo.strategy.export:run_export",
}


def work(run_dir: Path) -> None:
    """Do this rank's part of the job in ``run_dir``."""
    from neo.config.from_checkpoint import Use, read_opened
    from neo.config.plugins import load_plugins

    load_plugins()
    job = read_job(run_dir)
    use = {Task.EVAL: Use.EVAL, Task.EXPORT: Use.PREDICT if job.num_samples else Use.EXPORT}.get(job.task, Use.PREDICT)
    config = read_opened(run_dir / "resolved.yaml", use=use)
    if config.launch.threads_per_worker is not None:
        importlib.import_module("torch").set_num_threads(config.launch.threads_per_worker)
    module, name = _BODIES[job.task].split(":")
    getattr(importlib.import_module(module), name)(config, job, run_dir=run_dir)


if __name__ == "__main__":
    main(sys.argv[1:], work)
