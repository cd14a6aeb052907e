"""Writing and reading whole checkpoints: every rank takes part, and either all succeed or all raise.

A checkpoint is written into ``.NAME.saving`` beside it, forced to the disk, and renamed when it is complete; whatever
happens before that leaves earlier checkpoints as they were.
"""

import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from neo.checkpoint.blocks import Block, blocks_to_read, blocks_to_write, by_table
from neo.checkpoint.compare import differences
from neo.checkpoint.folder import file_entry, link_or_copy, wrong_files
from neo.checkpoint.manifest import Facts, FileEntry, Manifest, TableEntry, read_manifest, write_manifest
from neo.checkpoint.planners import BlockLoadPlanner, BlockSavePlanner
from neo.comms.collectives import Collectives
from neo.errors import CheckpointError
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.versions import installed_versions

T = TypeVar("T")


@dataclass(frozen=True)
class ModelTables:
    """All sharded tables of a model on this rank.

    Attributes:
        collections: By their path in the model.
        keys: The plan key of each table's name, by the path of its collection.
        entries: What a manifest says of each table.
    """

    collections: Mapping[str, EmbeddingBagCollection]
    keys: Mapping[str, Mapping[str, str]]
    entries: tuple[TableEntry, ...]

    def __iter__(self) -> Iterator[tuple[EmbeddingBagCollection, Mapping[str, str]]]:
        """Yield each collection with the plan keys of its tables."""
        for path, collection in self.collections.items():
            yield collection, self.keys[path]


TORCH_TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_TABLES, _REST = "tables", "rest.pt"
_STEPS = "sparse_steps"


def save_checkpoint(
    path: Path,
    tables: ModelTables,
    *,
    rest: Mapping[str, Any],
    facts: Facts,
    copies: Mapping[str, Path],
    collectives: Collectives,
) -> None:
    """Write a checkpoint. Every rank calls it.

    Args:
        path: Its folder; an existing one is replaced once the new one is complete.
        tables: The sharded tables.
        rest: Everything that is equal on all ranks; rank 0's is written, and read back with ``weights_only=True``.
        facts: Of the run, for the manifest.
        copies: More files and folders to be kept with it, by their name there.
        collectives: All ranks.

    Raises:
        CheckpointError: Any rank cannot write; every rank raises, and nothing else has changed.
    """
    draft = path.with_name(f".{path.name}.saving")
    try:
        _together(collectives, path, lambda: _begin(draft) if collectives.rank == 0 else None)
        blocks = [
            block
            for collection, keys in tables
            for block in blocks_to_write(
                collection, by_table(tables.entries, keys), rank=collectives.rank, world_size=collectives.world_size
            )
        ]
        steps = {name: collection.engine.num_steps for name, collection in tables.collections.items()}
        _together(collectives, path, lambda: _write_tables(draft, blocks))
        _together(collectives, path, lambda: _write_rest(draft, {**rest, _STEPS: steps}, copies, collectives.rank))
        files = _together(collectives, path, lambda: _share_of_files(draft, collectives))
        manifest = Manifest(
            facts=facts,
            world_size=collectives.world_size,
            tables=tables.entries,
            files={name: entry for part in files for name, entry in sorted(part.items())},
            versions=installed_versions(),
        )
        _together(collectives, path, lambda: _finish(draft, path, manifest) if collectives.rank == 0 else None)
    except CheckpointError:
        if collectives.rank == 0:
            shutil.rmtree(draft, ignore_errors=True)
        raise


def load_tables(
    path: Path,
    tables: ModelTables,
    *,
    collectives: Collectives,
    weights_only: bool = False,
) -> None:
    """Read the tables of a checkpoint into this rank's shards, whatever plan wrote it. Every rank calls it.

    Args:
        path: A complete checkpoint.
        tables: The sharded tables.
        collectives: All ranks.
        weights_only: Leave optimizer states and step counts as they are; optimizer and type of weights may differ.

    Raises:
        CheckpointError: It is damaged or of other tables; says what differs. Every rank raises, and none of the
            tables has changed.
    """
    manifest = read_manifest(path)
    if differing := differences(manifest.tables, tables.entries, weights_only=weights_only):
        raise CheckpointError("\n  ".join([f"'{path}' is a checkpoint of another model:", *differing]))
    _together(collectives, path, lambda: _verify_share(path, manifest, collectives), doing="read")
    blocks: list[Block] = []
    merges = []
    for collection, keys in tables:
        saved, wanted = by_table(manifest.tables, keys), by_table(tables.entries, keys)
        own_blocks, own_merges = blocks_to_read(collection, saved, wanted, weights_only=weights_only)
        blocks += own_blocks
        merges += own_merges
    _together(collectives, path, lambda: _read_blocks(path, blocks), doing="read")
    for merge in merges:
        merge.run()
    if not weights_only:
        steps = load_rest(path)[_STEPS]
        for name, collection in tables.collections.items():
            collection.engine.set_num_steps(steps[name])


def load_rest(path: Path) -> dict[str, Any]:
    """Return what ``save_checkpoint`` was given as ``rest``, and the step counts of the tables.

    Raises:
        CheckpointError: The file is missing or damaged.
    """
    file = path / _REST
    try:
        rest: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise CheckpointError(f"'{file}' cannot be read: {error.strerror}") from None
    except Exception as error:  # whatever torch.load makes of damaged content
        line = (str(error).splitlines() or [""])[0]
        raise CheckpointError(f"'{file}' is damaged: {type(error).__name__} {line}; take another checkpoint") from None
    return rest


def read_table(path: Path, entry: TableEntry) -> Tensor:
    """Return the weights of a whole table ``[num_embeddings, embedding_dim]`` in its own type, in one process.

    Raises:
        CheckpointError: The checkpoint is damaged.
    """
    return read_rows(path, entry, 0, entry.num_embeddings)


def read_rows(path: Path, entry: TableEntry, begin: int, end: int) -> Tensor:
    """Return the weights of some rows of a table ``[end - begin, embedding_dim]`` in its own type, in one process.

    Args:
        path: The checkpoint.
        entry: What its manifest says of the table.
        begin: The first row.
        end: The row behind the last one.

    Raises:
        CheckpointError: The checkpoint is damaged.
    """
    whole = (entry.num_embeddings, entry.embedding_dim)
    rows = torch.empty(end - begin, entry.embedding_dim, dtype=TORCH_TYPES[entry.weights_dtype])
    _read_blocks(path, [Block(f"{entry.key}/weight", whole, (begin, 0), rows)], alone=True)
    return rows


def _begin(draft: Path) -> None:
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)


def _write_tables(draft: Path, blocks: list[Block]) -> None:
    writer = FileSystemWriter(draft / _TABLES, sync_files=True)
    save({}, storage_writer=writer, planner=BlockSavePlanner(blocks))


def _read_blocks(path: Path, blocks: list[Block], *, alone: bool = False) -> None:
    reader, planner = FileSystemReader(path / _TABLES), BlockLoadPlanner(blocks)
    with torch.no_grad(), warnings.catch_warnings():
        # One process on its own is what is meant.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        load({}, storage_reader=reader, planner=planner, no_dist=alone)


def _write_rest(draft: Path, rest: Mapping[str, Any], copies: Mapping[str, Path], rank: int) -> None:
    if rank != 0:
        return
    torch.save(dict(rest), draft / _REST)
    for name, source in copies.items():
        target = draft / name
        if source.is_dir():
            shutil.copytree(source, target, copy_function=link_or_copy)
        else:
            shutil.copy2(source, target)  # A plan is edited by hand: it must not share its bytes.


def _share_of_files(draft: Path, collectives: Collectives) -> dict[str, FileEntry]:
    return {name: file_entry(draft / name) for name in _own_share(_files(draft), collectives)}


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _own_share(names: list[str], collectives: Collectives) -> list[str]:
    return names[collectives.rank :: collectives.world_size]


def _verify_share(path: Path, manifest: Manifest, collectives: Collectives) -> None:
    names = _own_share(sorted(manifest.files), collectives)
    for wrong in wrong_files(path, {name: manifest.files[name] for name in names}):
        raise CheckpointError(f"{wrong}; take another checkpoint")


def _finish(draft: Path, path: Path, manifest: Manifest) -> None:
    write_manifest(draft, manifest)
    for name in (*manifest.files, *{str(Path(name).parent) for name in manifest.files}, "checkpoint.json", "."):
        _force_to_disk(draft / name)
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    draft.rename(path)
    _force_to_disk(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def _force_to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _together(collectives: Collectives, path: Path, action: Callable[[], T], *, doing: str = "written") -> list[T]:
    """Run ``action`` on every rank and return what each returned; if any fails, all raise."""
    result: T | None = None
    problem = ""
    try:
        result = action()
    except CheckpointException as error:  # every rank has it, with the failures of all
        problem = "; ".join(dict.fromkeys(_reason(cause) for cause, _ in error.failures.values()))
    except Exception as error:
        problem = _reason(error)
    told = collectives.all_gather_object((result, problem))
    problems = {rank: entry[1] for rank, entry in enumerate(told) if isinstance(entry, tuple) and entry[1]}
    if problems:
        rank, first = next(iter(problems.items()))
        raise CheckpointError(f"the checkpoint '{path}' cannot be {doing}: {first} (rank {rank})")
    return [entry[0] for entry in told if isinstance(entry, tuple)]


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError):
        named = f"{error.filename}: " if error.filename is not None else ""
        return f"{named}{error.strerror or error}"
    return (str(error).splitlines() or [type(error).__name__])[0]
