"""``summary.json`` and ``summary.html``: complete whatever became of the run. Torch-free.

The parent writes what it knows before the workers start (``planned.json``); rank 0 writes what it measured; whoever
ends the run joins the two.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from neo.checkpoint.folder import FOLDER, complete_checkpoints
from neo.strategy.spec import PLANNED_FACTS
from neo.versions import installed_versions

SUMMARY = "summary.json"
PROGRESS = "progress.json"  # what rank 0 knew after the last validation
_MEASURED = ("steps", "samples", "samples_per_s", "step_time_s", "train_loss", "val", "data", "traffic_bytes_per_step")


class Status(StrEnum):
    """What became of a run."""

    DONE = "done"
    FAILED = "failed"
    INFEASIBLE = "infeasible"
    INTERRUPTED = "interrupted"
    PREEMPTED = "preempted"


@dataclass(frozen=True)
class RunFacts:
    """What is known about a run before its workers start.

    Attributes:
        world_size: Ranks.
        planned_for: ``2 ZionEX accelerators``.
        executed_on: ``2 CPU processes (gloo)``.
        config_fingerprint: Of the resolved configuration.
        plan_fingerprint: Of plan and tables; None if there is no plan.
        fallbacks: What the planner replaced, and why.
        resumed_from: The checkpoint that the run goes on from; None for a fresh start.
    """

    world_size: int
    planned_for: str
    executed_on: str
    config_fingerprint: str
    plan_fingerprint: str | None = None
    fallbacks: tuple[str, ...] = ()
    resumed_from: str | None = None


def write_facts(run_dir: Path, facts: RunFacts) -> None:
    """Leave what is known for whoever ends the run."""
    _write(run_dir / PLANNED_FACTS, asdict(facts))


def complete_summary(run_dir: Path, status: Status, *, error: str = "") -> None:
    """Write ``summary.json``, or add what is missing to the one that rank 0 wrote, or to what it knew last.

    Args:
        run_dir: The run folder.
        status: What became of the run; takes the place of what rank 0 wrote unless the run is done.
        error: What ended it.
    """
    written, facts = _read(run_dir / SUMMARY) or _read(run_dir / PROGRESS), _read(run_dir / PLANNED_FACTS)
    summary: dict[str, Any] = {"status": status.value, **dict.fromkeys(_MEASURED), "versions": installed_versions()}
    summary |= {key: value for key, value in written.items() if key != "status" and value is not None}
    if status is Status.DONE and "status" in written:
        summary["status"] = written["status"]
    fallbacks = [*facts.get("fallbacks", []), *written.get("fallbacks", [])]
    for key, value in facts.items():
        summary.setdefault(key, value)
    saved = complete_checkpoints(run_dir / FOLDER)
    summary["checkpoint"] = str(saved[-1].relative_to(run_dir)) if saved else None
    summary["fallbacks"] = list(dict.fromkeys(fallbacks))
    if error:
        summary["error"] = error
    _write(run_dir / SUMMARY, summary)
    (run_dir / PROGRESS).unlink(missing_ok=True)
    from neo.launch.page.page import write_page  # drawn when a run has ended; no command waits for it before

    write_page(run_dir, summary)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    draft.replace(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return content if isinstance(content, dict) else {}
