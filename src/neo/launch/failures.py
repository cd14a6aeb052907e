"""What ended a run: each failing rank leaves a report, and the first cause among them is found."""

import json
import os
import signal
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from neo.errors import NeoError

FOLDER = "errors"
_PROCESSES = "processes.json"
_TORCHRUN_FILE = "TORCHELASTIC_ERROR_FILE"
# A rank that dies of one of these did not react to another rank's failure: SIGTERM is how the others are ended,
# SIGABRT how gloo and NCCL end when a peer is gone.
_REACTIONS = (signal.SIGTERM, signal.SIGABRT)
# The engine's clock has whole seconds; a rank that ignores SIGTERM is killed later (launch.shutdown_timeout_s).
_SAME_MOMENT_S = 2.0


@dataclass(frozen=True)
class RankFailure:
    """The report of a rank that raised.

    Attributes:
        rank: Its global rank.
        time_s: When, in seconds since the epoch.
        error: Name of the exception's class.
        message: Its text.
        traceback: Python's report; empty for an error that neo raises on purpose.
    """

    rank: int
    time_s: float
    error: str
    message: str
    traceback: str

    def report(self) -> str:
        """Return Python's report, if there is one, and the error in one line below it."""
        if not self.traceback:
            return f"rank {self.rank} failed: {self.message}"
        return f"{self.traceback}\n\nrank {self.rank} failed: {self.error}: {self.message}"


@dataclass(frozen=True)
class ProcessEnd:
    """How the process of a rank ended, as the launching engine saw it.

    Attributes:
        rank: Its global rank.
        exit_code: Its exit code; minus the signal's number if a signal ended it.
        time_s: When this was noticed, in whole seconds.
    """

    rank: int
    exit_code: int
    time_s: float


def write_rank_failure(run_dir: Path, rank: int, error: BaseException) -> RankFailure:
    """Write and return the report of ``rank``; ``error`` is the exception that ends it."""
    wanted = isinstance(error, NeoError)
    trace = "" if wanted else "".join(traceback.format_exception(error)).rstrip()
    failure = RankFailure(rank, time.time(), type(error).__name__, str(error), trace)
    _write(run_dir / FOLDER / f"rank_{rank}.json", asdict(failure))
    return failure


def report_to_torchrun(error: str, message: str, trace: str = "") -> None:
    """Write torchrun's own error file, where it asks for one, so that its last lines name the first cause."""
    path = os.environ.get(_TORCHRUN_FILE)
    if not path:
        return
    extra = {"py_callstack": trace, "timestamp": str(int(time.time()))}
    content = {"message": {"message": f"{error}: {message}", "extraInfo": extra}}
    Path(path).write_text(json.dumps(content), encoding="utf-8")


def write_process_ends(run_dir: Path, ends: Mapping[int, ProcessEnd]) -> None:
    """Write how the processes of the failed ranks ended."""
    _write(run_dir / FOLDER / _PROCESSES, [asdict(end) for end in ends.values()])


def describe_failure(run_dir: Path) -> str:
    """Return the text about the first cause of a failed run, or an empty text if no rank left a trace."""
    folder = run_dir / FOLDER
    raised = [RankFailure(**_read(path)) for path in sorted(folder.glob("rank_*.json"))]
    processes = folder / _PROCESSES
    ends = [ProcessEnd(**end) for end in _read(processes)] if processes.is_file() else []
    first = min(raised, key=lambda failure: failure.time_s, default=None)
    killed = _killed(ends, first)
    if killed is not None:
        return _killed_text(killed)
    if first is not None:
        return first.report()
    if not ends:
        return ""
    end = min(ends, key=lambda one: (one.time_s, -one.exit_code))
    if end.exit_code < 0:
        return _killed_text(end)
    return f"rank {end.rank} ended with exit code {end.exit_code} and left no error"


def _killed(ends: list[ProcessEnd], raised: RankFailure | None) -> ProcessEnd | None:
    killed = [end for end in ends if end.exit_code < 0 and -end.exit_code not in _REACTIONS]
    first = min(killed, key=lambda end: end.time_s, default=None)
    if first is None or raised is None:
        return first
    return first if first.time_s - raised.time_s < _SAME_MOMENT_S else None


def _killed_text(end: ProcessEnd) -> str:
    name = signal.Signals(-end.exit_code).name
    hint = "; did the host run out of memory?" if name == "SIGKILL" else ""
    return f"rank {end.rank} was killed by {name}{hint}"


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(content, indent=2), encoding="utf-8")
    draft.replace(path)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
