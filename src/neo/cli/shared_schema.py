"""What the runs of a sweep learn from the same data, learned once.

A sweep learns into a folder of its own, one per distinct learning pass, and leaves in each run folder a pointer to it.
The pointer counts only for a run whose configuration asks for just that pass over just those files.
"""

import hashlib
import json
import shutil
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from neo.checkpoint.folder import link_or_copy
from neo.config.run_config import RunConfig
from neo.data.files import list_files
from neo.data.vocabulary import DataSchema, learn_schema, load_schema
from neo.errors import DataError

_POINTER = ".shared_schema"
_WITHOUT_EFFECT = ("global_batch_size", "shuffle", "shuffle_window")
"""Keys of ``data`` that a learning pass does not read."""


def schema_of(run: RunConfig, folder: Path, run_dir: Path) -> DataSchema:
    """Return what the training data holds: what a sweep has learned for this run, or else learned now.

    Args:
        run: The configuration.
        folder: Where the schema is to lie.
        run_dir: The run folder, where a sweep leaves its pointer.

    Raises:
        ConfigError: As ``learn_schema``.
        DataError: As ``learn_schema``.
    """
    learned = _pointed_to(run, run_dir)
    if learned is not None:
        with suppress(OSError, DataError):
            shutil.copytree(learned, folder, copy_function=link_or_copy)
            return load_schema(folder)
        shutil.rmtree(folder, ignore_errors=True)
    return _learn(run, folder)


def learn_shared(run: RunConfig, base: Path) -> tuple[DataSchema, Path]:
    """Return what the training data holds, learned into a folder below ``base`` unless it lies there already.

    Raises:
        ConfigError: As ``learn_schema``.
        DataError: As ``learn_schema``.
    """
    folder = base / schema_key(run)
    if folder.is_dir():
        return load_schema(folder), folder
    draft = folder.with_suffix(".new")
    try:
        schema = _learn(run, draft)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    if run.data.is_generated:
        return schema, folder  # Nothing was read: every run makes it again.
    draft.replace(folder)
    return load_schema(folder), folder


def point_to(run_dir: Path, learned: Path) -> None:
    """Leave in ``run_dir`` where its run finds what has been learned."""
    (run_dir / _POINTER).write_text(str(learned.absolute()), encoding="utf-8")


def forget_pointer(run_dir: Path) -> None:
    """Remove what ``point_to`` left."""
    (run_dir / _POINTER).unlink(missing_ok=True)


def schema_key(run: RunConfig) -> str:
    """Return a name for the learning pass of a run: equal for runs that learn the same from the same files."""
    data = {key: value for key, value in asdict(run.data).items() if key not in _WITHOUT_EFFECT}
    content = {
        "data": data,
        "num_embeddings": run.model.num_embeddings,
        "pooling_factors": run.model.pooling_factors,
        "seed": run.seed if run.data.is_generated else None,
        "files": [_files(path, run.data.name) for path in (run.data.path, run.data.val_path)],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _files(path: Path | None, reader: str) -> list[tuple[str, int, int]]:
    """Return name, bytes and time of change of each file, so that a changed file is another one."""
    if path is None:
        return []
    stats = [(str(file), file.stat()) for file in list_files(path, reader)]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def _pointed_to(run: RunConfig, run_dir: Path) -> Path | None:
    try:
        learned = Path((run_dir / _POINTER).read_text(encoding="utf-8"))
    except OSError:
        return None
    return learned if learned.is_dir() and learned.name == schema_key(run) else None


def _learn(run: RunConfig, folder: Path) -> DataSchema:
    return learn_schema(
        run.data,
        num_embeddings=run.model.num_embeddings,
        pooling_factors=run.model.pooling_factors,
        seed=run.seed,
        folder=folder,
    )
