"""One point of a sweep as a job: what Hydra calls, here or on the node to which a launcher took it."""

import logging
from dataclasses import dataclass
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from neo.cli.job import JobEnd, run_job
from neo.cli.sweep_rows import Row, read_row
from neo.config.points import label
from neo.config.purpose import Purpose
from neo.config.store import register

log = logging.getLogger("neo")


@dataclass(frozen=True)
class SweepJob:
    """The task of every point; says in the terminal and in the point's own log which one it is and how it ended.

    Attributes:
        purpose: What the sweep is for.
        points: What the sweep gives its keys in each point, in order.
    """

    purpose: Purpose
    points: tuple[tuple[tuple[str, str], ...], ...]

    def __call__(self, config: DictConfig) -> JobEnd:
        """Run the point that Hydra's configuration names."""
        register()  # A launcher may have brought this to another process.
        hydra = HydraConfig.get()
        number, folder = int(hydra.job.num), Path(hydra.runtime.output_dir)
        swept = self.points[number]
        log.info("point %d (one of %d): %s", number, len(self.points), label(swept) or "nothing is swept")
        end = run_job(self.purpose, config, folder)
        row = read_row(self.purpose, number, swept, folder, end)
        log.info("point %d %s", number, _ended(row))
        return end


def _ended(row: Row) -> str:
    return f"{row.status}: {row.error.strip().splitlines()[0]}" if row.error.strip() else str(row.status)
