"""The worker's side of ``neo eval``: the metrics of a checkpoint on the validation samples."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from neo.checkpoint.job import Job
from neo.checkpoint.manifest import read_manifest
from neo.comms.collectives import TorchCollectives
from neo.config.run_config import RunConfig
from neo.strategy.parts import embeddings_of
from neo.strategy.scoring import make_scoring
from neo.strategy.summary import write_summary
from neo.versions import installed_versions


def run_evaluation(config: RunConfig, job: Job, *, run_dir: Path) -> dict[str, Any] | None:
    """Evaluate as one rank; rank 0 writes ``job.out``.

    Returns:
        The content of ``eval.json`` on rank 0, None on the others.

    Raises:
        NeoError: Data, plan or checkpoint are wrong; the message says what to change.
    """
    scoring = make_scoring(config, run_dir=run_dir, checkpoint=job.checkpoint, doing="evaluating")
    scoring.trainer.validate(scoring.module, scoring.loader, verbose=False)
    embeddings = embeddings_of(scoring.module)
    own = (embeddings.out_of_range_counts, embeddings.fallbacks)
    told = cast(list[tuple[dict[str, int], tuple[str, ...]]], TorchCollectives().all_gather_object(own))
    report = scoring.module.report
    if scoring.world.rank != 0:
        return None
    assert report is not None
    repaired = {table: sum(counts[table] for counts, _ in told) for table in own[0]}
    data = config.data
    content = {
        **asdict(report),
        "checkpoint": str(job.checkpoint),
        "step": read_manifest(job.checkpoint).facts.step,
        "data": {"name": data.name, "val_path": None if data.val_path is None else str(data.val_path)},
        "out_of_range": {table: count for table, count in repaired.items() if count},
        "world_size": scoring.world.size,
        "fallbacks": list(dict.fromkeys(line for _, lines in told for line in lines)),
        "versions": installed_versions(),
    }
    write_summary(job.out, content)
    return content
