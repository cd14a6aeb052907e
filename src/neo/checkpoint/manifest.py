"""What a checkpoint says of itself, torch-free: ``checkpoint.json``, the last file to be written."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from neo.errors import CheckpointError

MANIFEST = "checkpoint.json"
_VERSION = 1


@dataclass(frozen=True)
class TableEntry:
    """One table as it was saved.

    Attributes:
        key: Its plan key.
        num_embeddings: Rows.
        embedding_dim: Columns.
        weights_dtype: Type of its weights.
        optimizer: Name of its optimizer.
        states: Names of its optimizer states, and whether each holds one number per row (else one per weight).
        pooling: How bags are pooled.
        weighted: Whether its ids carry weights.
        feature_names: The features that read it.
        column_ranges: Where a row-wise state was kept per column shard, those; else the whole width.
    """

    key: str
    num_embeddings: int
    embedding_dim: int
    weights_dtype: str
    optimizer: str
    states: Mapping[str, bool]
    pooling: str
    weighted: bool
    feature_names: tuple[str, ...]
    column_ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class FileEntry:
    """Size and checksum of one file of a checkpoint."""

    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class Facts:
    """What a run knows about the moment that it saves.

    Attributes:
        step: Optimizer steps done.
        epoch: Passes over the data done.
        samples: Training samples seen, over all ranks.
        plan_fingerprint: Of plan and tables; empty where there is none.
        data_fingerprint: Of what was learned from the data; empty where there is none.
        val: Metrics of a validation at this step, None if there was none.
    """

    step: int
    epoch: int = 0
    samples: int = 0
    plan_fingerprint: str = ""
    data_fingerprint: str = ""
    val: Mapping[str, float | None] | None = None


@dataclass(frozen=True)
class Manifest:
    """A checkpoint's content.

    Attributes:
        facts: Of the run.
        world_size: Ranks that wrote it.
        tables: The tables, in the model's order.
        files: Its files by name relative to the folder, without the manifest.
        versions: Of the packages that wrote it.
    """

    facts: Facts
    world_size: int
    tables: tuple[TableEntry, ...]
    files: Mapping[str, FileEntry]
    versions: Mapping[str, str]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a checkpoint whose other files are all there."""
    content = {"version": _VERSION, **asdict(manifest)}
    (folder / MANIFEST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a checkpoint.

    Raises:
        CheckpointError: There is none, it cannot be read, or a newer version of neo wrote it.
    """
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != _VERSION:
            raise CheckpointError(f"'{path}' has version {content['version']}, this neo reads {_VERSION}; update neo")
        return _manifest(content)
    except FileNotFoundError:
        raise CheckpointError(f"'{folder}' is no complete checkpoint: it holds no {MANIFEST}") from None
    except OSError as error:
        raise CheckpointError(f"'{path}' cannot be read: {error.strerror}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        line = (str(error).splitlines() or [""])[0]
        raise CheckpointError(f"'{path}' is damaged: {type(error).__name__} {line}; take an older checkpoint") from None


def _manifest(content: Mapping[str, Any]) -> Manifest:
    tables = tuple(
        TableEntry(
            **entry
            | {
                "feature_names": tuple(entry["feature_names"]),
                "column_ranges": tuple((int(begin), int(end)) for begin, end in entry["column_ranges"]),
            }
        )
        for entry in content["tables"]
    )
    return Manifest(
        facts=Facts(**content["facts"]),
        world_size=int(content["world_size"]),
        tables=tables,
        files={name: FileEntry(**entry) for name, entry in content["files"].items()},
        versions=dict(content["versions"]),
    )
