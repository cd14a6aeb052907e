"""A checkpoint as one unsharded model that needs no neo to be read: weights, card, vocabularies, a page for people.

One process writes it, and holds one block of rows of one table at a time.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from torch import Tensor

from neo.checkpoint.folder import verify
from neo.checkpoint.manifest import Manifest, TableEntry
from neo.checkpoint.readme import readme_of
from neo.checkpoint.safetensors_file import StoredTensor, write_safetensors
from neo.checkpoint.store import TORCH_TYPES, load_rest, read_rows
from neo.config.run_config import RunConfig
from neo.data.encode import FIRST_KNOWN_ROW
from neo.data.schema import DataSchema, SparseColumn, load_schema
from neo.data.spec import Encoding
from neo.models.spec import EMBEDDINGS_PATH
from neo.versions import installed_versions

MODEL, CARD, README = "model.safetensors", "model.json", "README.md"
_VERSION = 1
_BLOCK_BYTES = 64 << 20
_VOCABULARY_ROWS = 1 << 20
_MODULE = "model."  # where the model sits in the module that was trained
_RULES = {
    Encoding.VOCABULARY: "row 0 for a missing id, row 1 for an unknown one, else the row that the vocabulary gives",
    Encoding.HASH: "row 0 for a missing id, else 1 + hash(id) mod (rows - 1); docs/serving.md has the hash",
    Encoding.IDENTITY: "the id is its row; the last row is for a missing id",
}
_GENERATED = "made on the fly: the id is its row"


def export_model(config: RunConfig, checkpoint: Path, folder: Path, *, dtype: str, console: Console) -> None:
    """Write a checkpoint's model into a folder.

    Args:
        config: The configuration that it was trained with.
        checkpoint: A complete checkpoint.
        folder: An existing folder.
        dtype: The type of all tables in the file; empty leaves each as it is.
        console: Where the progress is shown.

    Raises:
        CheckpointError: The checkpoint is damaged.
    """
    manifest = verify(checkpoint)
    schema = load_schema(checkpoint / "data_schema")
    dense = _dense_part(checkpoint)
    tables = [_stored(checkpoint, entry, dtype) for entry in manifest.tables]
    with _progress(console) as progress:
        task = progress.add_task("exporting", total=sum(tensor.num_bytes for tensor in (*dense, *tables)))
        write_safetensors(
            folder / MODEL,
            [*dense, *tables],
            metadata={"format": "pt", "step": str(manifest.facts.step)},
            written=lambda num_bytes: progress.advance(task, num_bytes),
        )
    vocabularies = _write_vocabularies(schema, folder)
    card = _card(config, manifest, schema, dense, dtype, vocabularies)
    (folder / CARD).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    (folder / README).write_text(readme_of(card), encoding="utf-8")


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)


def _dense_part(checkpoint: Path) -> list[StoredTensor]:
    """Return everything but the tables, by its name in the model."""
    found: Mapping[str, Tensor] = load_rest(checkpoint)["state_dict"]
    return [StoredTensor.of(name.removeprefix(_MODULE), tensor) for name, tensor in found.items()]


def _stored(checkpoint: Path, entry: TableEntry, dtype: str) -> StoredTensor:
    """Return a table that is read when it is written."""
    kept = TORCH_TYPES[entry.weights_dtype]
    rows = max(1, _BLOCK_BYTES // (entry.embedding_dim * kept.itemsize))

    def blocks() -> Iterable[Tensor]:
        for begin in range(0, entry.num_embeddings, rows):
            yield read_rows(checkpoint, entry, begin, min(begin + rows, entry.num_embeddings))

    shape = (entry.num_embeddings, entry.embedding_dim)
    return StoredTensor(f"embeddings.{_name(entry)}", TORCH_TYPES[dtype or entry.weights_dtype], shape, blocks)


def _name(entry: TableEntry) -> str:
    return entry.key.removeprefix(f"{EMBEDDINGS_PATH}.")


def _write_vocabularies(schema: DataSchema, folder: Path) -> dict[str, str]:
    """Write which row each known id has, and return the file of each feature that has a vocabulary."""
    written = {}
    for index, column in enumerate(schema.sparse):
        if column.vocabulary is None:
            continue
        name = f"vocabulary_{index:04d}.parquet"
        _write_vocabulary(schema.folder / column.vocabulary, folder / name)
        written[column.name] = name
    return written


def _write_vocabulary(source: Path, target: Path) -> None:
    """Copy a vocabulary part by part: the id at position p has row 2 + p."""
    with pa.memory_map(str(source)) as mapped:
        ids = pa.ipc.open_file(mapped).read_all().column("id")
        kind = pa.schema([("id", ids.type), ("row", pa.int64())])
        with pq.ParquetWriter(target, kind) as writer:
            for begin in range(0, len(ids), _VOCABULARY_ROWS):
                part = ids.slice(begin, _VOCABULARY_ROWS)
                first = FIRST_KNOWN_ROW + begin
                writer.write_table(pa.table([part, np.arange(first, first + len(part))], schema=kind))


def _card(
    config: RunConfig,
    manifest: Manifest,
    schema: DataSchema,
    dense: Iterable[StoredTensor],
    dtype: str,
    vocabularies: Mapping[str, str],
) -> dict[str, Any]:
    """Return all that somebody needs to know who has nothing but the files."""
    facts = manifest.facts
    return {
        "version": _VERSION,
        "model": _model(config, schema),
        "layers": _layers(tensor.name for tensor in dense),
        "features": [column.name for column in schema.sparse],
        "tables": [
            {
                "name": _name(entry),
                "tensor": f"embeddings.{_name(entry)}",
                "num_embeddings": entry.num_embeddings,
                "embedding_dim": entry.embedding_dim,
                "features": list(entry.feature_names),
                "pooling": entry.pooling,
                "weighted": entry.weighted,
                "dtype": dtype or entry.weights_dtype,
                "trained_dtype": entry.weights_dtype,
            }
            for entry in manifest.tables
        ],
        "sparse": [_sparse(column, vocabularies) for column in schema.sparse],
        "dense": {
            "transform": config.data.dense_transform.value,
            "columns": [asdict(column) for column in schema.dense],
        },
        "trained": {
            "step": facts.step,
            "epoch": facts.epoch,
            "samples": facts.samples,
            "val": facts.val,
            "precision": config.trainer.precision.value,
            "data_fingerprint": schema.fingerprint,
        },
        "versions": {"written_by": dict(manifest.versions), "exported_by": installed_versions()},
    }


def _model(config: RunConfig, schema: DataSchema) -> dict[str, Any]:
    """Return name and sizes of the model, without what only planning or the data decides."""
    known = asdict(config.model)
    for key in ("num_embeddings", "pooling_factors", "path", "mflops_per_sample", "dense_parameters"):
        del known[key]
    return {key: list(value) if isinstance(value, tuple) else value for key, value in known.items()} | {
        "num_dense": len(schema.dense)
    }


def _layers(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the linear layers of each part of the model, in the order in which they are applied."""
    layers: dict[str, list[str]] = {}
    for name in names:
        layer, _, kind = name.rpartition(".")
        if kind == "weight":
            layers.setdefault(layer.partition(".")[0], []).append(layer)
    return layers


def _sparse(column: SparseColumn, vocabularies: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": column.name,
        "rows": column.num_embeddings,
        "encoding": column.encoding.value,
        "rule": _RULES[column.encoding] if column.kind is not None or column.vocabulary else _GENERATED,
        "ids": None if column.kind is None else column.kind.value,
        "vocabulary": vocabularies.get(column.name),
        "weights": column.weights,
        "bag_size": column.bag_size,
    }
