"""One job, whatever started it: what ends it is printed, and becomes its exit code."""

import importlib
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from omegaconf import DictConfig

from neo.config.purpose import Purpose
from neo.errors import NeoError
from neo.launch.failures import report_to_torchrun

Job = Callable[[DictConfig, Path], int]
_JOBS = {Purpose.TRAIN: "neo.cli.train:train", Purpose.PLAN: "neo.cli.plan:plan"}


@dataclass(frozen=True)
class JobEnd:
    """How a job ended.

    Attributes:
        exit_code: Of ``neo.cli.main``.
        error: What ended it, in one line; empty if nothing did, or if its ``summary.json`` says more.
    """

    exit_code: int
    error: str = ""


def run_job(purpose: Purpose, config: DictConfig, run_dir: Path) -> JobEnd:
    """Run one job in ``run_dir``; print whatever ends it."""
    try:
        module, name = _JOBS[purpose].split(":")
        return JobEnd(cast(Job, getattr(importlib.import_module(module), name))(config, run_dir))
    except NeoError as error:
        return _ended_by(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return JobEnd(1, "interrupted")
    except OSError as error:
        named = f"{error.filename}: " if error.filename is not None else ""
        reason = f"{named}{error.strerror or error}"
        return _ended_by(NeoError(f"the run in {run_dir} cannot go on: {reason}"))
    except Exception as error:
        traceback.print_exc()
        return JobEnd(1, f"{type(error).__name__}: {error}")


def report(error: NeoError, *, speaks: bool) -> int:
    """Print an error if this process ``speaks`` for its job, leave it for torchrun, and return its exit code."""
    report_to_torchrun(type(error).__name__, str(error))
    if speaks:
        sys.stdout.flush()
        print(error, file=sys.stderr)
    return error.exit_code


def _ended_by(error: NeoError) -> JobEnd:
    return JobEnd(report(error, speaks=True), str(error))
