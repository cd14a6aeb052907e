"""The benchmark scripts run: their short modes, whose numbers mean nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_benchmark_of_the_kernels_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "benchmarks/ops.py", "--short", "--steps", "2"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(fbgemm|torch|reference) .* \d+\.\d\dx$", done.stdout, re.MULTILINE)
    assert rows == ["fbgemm", "torch", "reference"] * 2
