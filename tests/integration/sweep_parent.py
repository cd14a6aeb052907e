"""``neo train -m …`` with workers that meet over gloo and then do what the seed of their point says.

``python -m sweep_parent [overrides]``; of a point with ``seed=7`` rank 1 fails.
"""

import json
import sys
from pathlib import Path
from typing import Any

from neo.cli import train
from neo.cli.main import main
from neo.config.resolve import read_resolved
from neo.launch.process import Outcome, run_workers


def _run_workers(run_dir: Path, **how: Any) -> Outcome:
    fails = read_resolved(run_dir / "resolved.yaml").seed == 7
    (run_dir / "script.json").write_text(json.dumps({"1": "raise", "0": "wait"} if fails else {}))
    return run_workers(run_dir, worker="launch_worker", **how)


if __name__ == "__main__":
    vars(train)["run_workers"] = _run_workers
    sys.exit(main(["train", "-m", *sys.argv[1:]]))
