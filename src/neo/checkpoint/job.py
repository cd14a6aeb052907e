"""What the workers of ``neo eval``, ``predict`` and ``export`` are to do, left in their run folder. Torch-free."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

JOB = "job.json"
EVAL_FILE = "eval.json"


class Task(StrEnum):
    """What is done with a checkpoint."""

    EVAL = "eval"
    PREDICT = "predict"
    EXPORT = "export"


@dataclass(frozen=True)
class Job:
    """A task and what it needs to know.

    Attributes:
        task: What to do.
        checkpoint: A complete checkpoint.
        out: Where the result goes: ``eval.json``, the folder of the parts of the scores, the folder of the export.
        dtype: ``export``: the type of all tables; empty leaves each as it is.
        num_samples: ``export``: encoded validation samples to write beside the model.
    """

    task: Task
    checkpoint: Path
    out: Path
    dtype: str = ""
    num_samples: int = 0


def write_job(run_dir: Path, job: Job) -> None:
    """Leave a job for the workers."""
    content = asdict(job) | {"checkpoint": str(job.checkpoint), "out": str(job.out)}
    (run_dir / JOB).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_job(run_dir: Path) -> Job:
    """Return the job of a run folder."""
    content = json.loads((run_dir / JOB).read_text(encoding="utf-8"))
    paths = {"checkpoint": Path(content["checkpoint"]), "out": Path(content["out"])}
    return Job(**content | paths | {"task": Task(content["task"])})
