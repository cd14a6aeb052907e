"""The benchmark scripts run: their short modes, whose numbers mean nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_benchmark_of_the_kernels_runs() -> None:
    told = _run("benchmarks/ops.py", "--short", "--steps", "2")
    rows = re.findall(r"^(fbgemm|torch|reference) .* \d+\.\d\dx$", told, re.MULTILINE)
    assert rows == ["fbgemm", "torch", "reference"] * 2


def test_the_benchmark_of_the_reader_runs() -> None:
    told = _run("benchmarks/reader.py", "--short")
    rows = re.findall(r"^(whole numbers|text), (\w+) +[\d,]+ +[\d,]+ +\d\.\d\d", told, re.MULTILINE)
    assert rows == [
        ("whole numbers", "identity"),
        ("whole numbers", "hash"),
        ("whole numbers", "vocabulary"),
        ("text", "vocabulary"),
        ("text", "hash"),
    ]
