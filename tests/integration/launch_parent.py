"""A parent for the tests that kill or interrupt it: ``python -m launch_parent RUN_DIR [preemptible]``."""

import sys
from pathlib import Path

from neo.launch.process import run_workers
from neo.launch.spec import LaunchSpec

if __name__ == "__main__":
    outcome = run_workers(
        Path(sys.argv[1]),
        num_processes=2,
        launch=LaunchSpec(1, shutdown_timeout_s=5),
        worker="launch_worker",
        preemptible="preemptible" in sys.argv,
    )
    print(outcome, flush=True)
