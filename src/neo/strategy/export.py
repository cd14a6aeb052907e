"""The worker's side of ``neo export``: the model in files, and encoded samples beside it."""

import json
import sys
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from neo.checkpoint.export import CARD, README, export_model
from neo.checkpoint.job import Job
from neo.checkpoint.readme import readme_of
from neo.checkpoint.safetensors_file import StoredTensor, write_safetensors
from neo.config.run_config import RunConfig
from neo.data.batch import Batch
from neo.data.schema import load_schema
from neo.errors import DataError
from neo.strategy.parts import this_world
from neo.strategy.scoring import validation_loader

SAMPLES = "samples.safetensors"


def run_export(config: RunConfig, job: Job, *, run_dir: Path) -> None:
    """Write the checkpoint's model into ``job.out``, in one process.

    Raises:
        NeoError: The checkpoint is damaged, or the samples are wrong.
    """
    console = Console(file=sys.stdout)
    export_model(config, job.checkpoint, job.out, dtype=job.dtype, console=console)
    if job.num_samples:
        count = write_samples(config, job)
        if count < job.num_samples:
            console.print(f"there are only {count:,} validation samples; all of them were written", highlight=False)
        card = json.loads((job.out / CARD).read_text(encoding="utf-8")) | {"samples": count}
        (job.out / CARD).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
        (job.out / README).write_text(readme_of(card), encoding="utf-8")


def write_samples(config: RunConfig, job: Job) -> int:
    """Write the first validation samples in the combined format and return their number.

    Raises:
        DataError: They are not what the configuration says.
    """
    schema = load_schema(job.checkpoint / "data_schema")
    batches: list[Batch] = []
    for batch in validation_loader(config, schema, this_world(config)):
        batches.append(batch)
        if sum(b.batch_size for b in batches) >= job.num_samples:
            break
    if not batches:
        raise DataError("there are no validation samples to export")
    tensors = _joined(batches, job.num_samples)
    write_safetensors(job.out / SAMPLES, [StoredTensor.of(name, tensor) for name, tensor in tensors.items()])
    return int(tensors["dense"].shape[0])


def _joined(batches: list[Batch], limit: int) -> dict[str, Tensor]:
    """Return dense ``[B, D]``, lengths ``[F, B]``, values ``[N]`` feature-major and weights ``[N]`` of B samples."""
    dense = torch.cat([batch.dense for batch in batches])[:limit]
    num_samples, num_features = dense.shape[0], len(batches[0].sparse.keys)
    lengths = torch.cat([batch.sparse.lengths_by_feature for batch in batches], dim=1)[:, :num_samples]
    columns: dict[str, list[Tensor]] = {"values": [], "weights": []}
    for feature in range(num_features):
        count = int(lengths[feature].sum())
        for name, parts in columns.items():
            own = [_part(batch, name).split(batch.sparse.count_ids())[feature] for batch in batches]
            parts.append(torch.cat(own)[:count])
    return {"dense": dense, "lengths": lengths, **{name: torch.cat(parts) for name, parts in columns.items()}}


def _part(batch: Batch, name: str) -> Tensor:
    """Return ids or weights; a weight of 1 for each id where there are none."""
    if name == "values":
        return batch.sparse.values
    return torch.ones(batch.sparse.values.numel()) if batch.sparse.weights is None else batch.sparse.weights
