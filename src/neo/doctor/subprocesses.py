"""Runs a probe in a process of its own, with a time limit, and says how it ended. Torch-free."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import neo
from neo.doctor.check import Check, State

PROBES = "neo.doctor.probes"


def run_probe(
    name: str, arguments: Sequence[str], *, fix: str, timeout_s: float, python: Sequence[str] = ("-P", "-m", PROBES)
) -> Check:
    """Return what a probe found, or how its process ended without a finding.

    Args:
        name: Name of the check.
        arguments: The probe and its arguments.
        fix: What to do if the process dies.
        timeout_s: After so long it is killed.
        python: What Python is told to run; tests pass theirs.
    """
    command = [sys.executable, *python, *arguments]
    try:
        done = subprocess.run(
            command,
            env=_environment(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Check(name, State.FAIL, f"did not end within {timeout_s:g} s", fix)
    lines = done.stdout.strip().splitlines()
    try:
        check = Check.from_json(lines[-1]) if lines else None
    except ValueError:
        check = None
    if check is not None and done.returncode == 0:
        return Check(name, check.state, check.found, check.fix)
    return Check(name, State.FAIL, _ending(done.returncode, done.stderr), fix)


def _ending(code: int, stderr: str) -> str:
    """Return how a process died, with the error it printed last."""
    said = [line.strip() for line in stderr.strip().splitlines() if line.strip()]
    last = f": {said[-1]}" if said else ""
    if code < 0:
        try:
            return f"crashed with {signal.Signals(-code).name}{last}"
        except ValueError:
            return f"crashed with signal {-code}{last}"
    return said[-1] if said else f"ended with exit code {code} and said nothing"


def _environment() -> dict[str, str]:
    source = str(Path(neo.__file__ or "").parents[1])
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", source)]
    path = os.pathsep.join([source, *others])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
