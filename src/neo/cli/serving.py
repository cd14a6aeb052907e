"""What ``neo eval`` and ``neo predict`` share: open a checkpoint, lay out its tables, and start the workers."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from neo.checkpoint.folder import find_checkpoint, wrong_files
from neo.checkpoint.job import Job, write_job
from neo.checkpoint.manifest import Manifest, read_manifest
from neo.cli.planning import keyed, plan_tables
from neo.config.devices import execution_device
from neo.config.from_checkpoint import Opened, Use, open_config
from neo.config.resolve import write_resolved
from neo.config.store import register
from neo.data.encode import check_kind
from neo.data.schema import DataSchema, load_schema
from neo.data.spec import READERS, Split
from neo.errors import CheckpointError, ConfigError, Finding, NeoError
from neo.launch.environment import rank_environment
from neo.launch.process import run_workers
from neo.models.spec import EMBEDDINGS_PATH, tables_of
from neo.plan.serialize import write_plan
from neo.strategy.spec import executed_on

_TABLES = "tables/"
_WORKER = "neo.launch.job_worker"


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint whose small files are undamaged; the workers look at the tables.

    Attributes:
        path: Its folder.
        manifest: What it says of itself.
        schema: How samples are encoded.
    """

    path: Path
    manifest: Manifest
    schema: DataSchema


def open_checkpoint(asked: Path) -> Checkpoint:
    """Find the checkpoint that a path means and read what it keeps of its run.

    Raises:
        ConfigError: Something else has started this process as one of many.
        CheckpointError: There is none, it is damaged, or no ``neo train`` wrote it.
    """
    ranks = rank_environment()
    if ranks is not None:
        problem = f"starts its own workers, and {ranks.starter} has started these already"
        raise ConfigError([Finding("neo", problem, "run it once, by itself")])
    register()
    path = find_checkpoint(asked).absolute()
    manifest = read_manifest(path)
    read_here = {name: entry for name, entry in manifest.files.items() if not name.startswith(_TABLES)}
    for wrong in wrong_files(path, read_here):
        raise CheckpointError(f"'{path}' is damaged: {wrong}; take another checkpoint")
    if not (path / "data_schema").is_dir():
        fix = "neo train keeps it; a module of your own is evaluated with Trainer.validate(..., ckpt_path=...)"
        raise CheckpointError(f"'{path}' does not keep how samples are encoded (data_schema); {fix}")
    return Checkpoint(path, manifest, load_schema(path / "data_schema"))


def score(checkpoint: Checkpoint, overrides: Sequence[str], job: Job, *, use: Use, run_dir: Path) -> Opened:
    """Run a job that scores the validation samples, on all ranks, and wait for its end.

    Args:
        checkpoint: The checkpoint.
        overrides: As typed.
        job: What the workers do.
        use: Whether labels are read.
        run_dir: The folder that tells the workers.

    Raises:
        ConfigError: The overrides are wrong.
        InfeasiblePlanError: The tables do not fit.
        DataError: The samples are of another kind than those of the training.
        NeoError: A worker failed.
    """
    opened = open_config(checkpoint.path, overrides, use=use, world_size=checkpoint.manifest.world_size)
    run, world_size = opened.run, opened.num_processes
    run = replace(run, hardware=run.hardware.scaled_to(world_size))
    if not run.data.is_generated:
        kinds = READERS.get(run.data.name)(run.data, Split.VAL).kinds()
        for column in checkpoint.schema.sparse:
            check_kind(column, kinds[column.name], where=f"'{run.data.val_path}'")
    tables = keyed(tables_of(run.model, checkpoint.schema.features), EMBEDDINGS_PATH)
    device = execution_device(run.trainer.accelerator)
    planned = plan_tables(run, tables, device=device)
    run_dir.mkdir(parents=True, exist_ok=True)
    settled = {"trainer.accelerator": device.value, "data.global_batch_size": run.data.training_batch_size}
    write_resolved(run_dir / "resolved.yaml", opened.config, settled)
    write_plan(run_dir / "plan.json", planned.plan, planned.fingerprint)
    for note in opened.notes:
        print(note)
    print(f"checkpoint: {checkpoint.path}; executed on: {executed_on(device, world_size)}", flush=True)
    start(job, run_dir=run_dir, opened=opened, num_processes=world_size)
    return opened


def start(job: Job, *, run_dir: Path, opened: Opened, num_processes: int) -> None:
    """Start workers on a job and wait until none is left.

    Raises:
        NeoError: A worker failed; its error is the message.
    """
    write_job(run_dir, job)
    outcome = run_workers(run_dir, num_processes=num_processes, launch=opened.run.launch, worker=_WORKER)
    if not outcome.done:
        sys.stdout.flush()
        raise NeoError(outcome.message)
