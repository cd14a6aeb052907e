"""What was learned from the training data, torch-free: features, vocabularies, dense statistics; and its storage.

The learning pass runs once in the parent; workers load what it stored, with vocabularies mapped into memory.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from neo.data.columns import Kind
from neo.data.hashing import Hashes
from neo.data.spec import Encoding
from neo.errors import DataError
from neo.tables.spec import FeatureSpec

_FILE = "schema.json"
_VERSION = 1


@dataclass(frozen=True)
class DenseColumn:
    """A dense column: (x - mean) / deviation under ``standardize``; a constant column has deviation 1."""

    name: str
    mean: float = 0.0
    deviation: float = 1.0


@dataclass(frozen=True)
class SparseColumn:
    """How the ids of a column become rows.

    Attributes:
        name: The column, and the feature.
        encoding: See ``Encoding``.
        kind: What its ids are in the training data; None where no file was read.
        num_embeddings: Rows that ids can become.
        pooling_factor: Mean ids per sample.
        weights: The column of its weights, or None.
        vocabulary: Name of the file of known ids, or None.
        min_count: Ids that the training data holds fewer times are not in the vocabulary.
        bag_size: Ids that each id becomes by a fixed rule.
    """

    name: str
    encoding: Encoding
    kind: Kind | None
    num_embeddings: int
    pooling_factor: float
    weights: str | None = None
    vocabulary: str | None = None
    min_count: int = 1
    bag_size: int = 1


@dataclass(frozen=True)
class DataSchema:
    """The data as the model sees it.

    Attributes:
        dense: Dense columns with their statistics.
        sparse: Sparse columns, in the order of a batch's keys.
        fingerprint: Changes with anything that changes what a sample becomes.
        num_samples: Training samples that were counted, None if they were not.
        folder: Where it is stored.
    """

    dense: tuple[DenseColumn, ...]
    sparse: tuple[SparseColumn, ...]
    fingerprint: str
    num_samples: int | None
    folder: Path

    @property
    def dense_names(self) -> tuple[str, ...]:
        """Names of the dense features."""
        return tuple(column.name for column in self.dense)

    @property
    def features(self) -> tuple[FeatureSpec, ...]:
        """The sparse features, in the order of a batch's keys."""
        return tuple(
            FeatureSpec(column.name, column.num_embeddings, column.pooling_factor, column.weights is not None)
            for column in self.sparse
        )

    def known_hashes(self, column: SparseColumn) -> Hashes:
        """Return the hashes of a column's known ids in rising order, mapped from the file.

        Raises:
            DataError: The file is gone or broken.
        """
        hashes: Hashes = self._vocabulary(column).column("hash").combine_chunks().to_numpy()
        return hashes

    def known_ids(self, column: SparseColumn) -> Any:
        """Return a column's known ids as an Arrow array, in the order of their hashes. Raises as ``known_hashes``."""
        return self._vocabulary(column).column("id").combine_chunks()

    def _vocabulary(self, column: SparseColumn) -> Any:
        path = self.folder / str(column.vocabulary)
        try:
            with pa.memory_map(str(path)) as source:
                return pa.ipc.open_file(source).read_all()
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"'{path}' cannot be read as a vocabulary: {_first_line(error)}") from None


@dataclass(frozen=True)
class Vocabulary:
    """The known ids of a column.

    Attributes:
        hashes: ``[V]`` in rising order; the id at position p has row 2 + p.
        ids: Arrow array of ``[V]`` ids in the same order.
    """

    hashes: Hashes
    ids: Any


def store_schema(schema: DataSchema, vocabularies: dict[str, Vocabulary]) -> DataSchema:
    """Write a schema and its vocabularies (by column) into its folder and return it with its fingerprint."""
    schema.folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    for column in schema.sparse:
        if column.vocabulary is not None:
            known = vocabularies[column.name]
            _write_vocabulary(schema.folder / column.vocabulary, known)
            digest.update(np.ascontiguousarray(known.hashes).tobytes())
    content = {
        "version": _VERSION,
        "dense": [asdict(column) for column in schema.dense],
        "sparse": [asdict(column) for column in schema.sparse],
        "num_samples": schema.num_samples,
    }
    digest.update(json.dumps(content, sort_keys=True).encode())
    content["fingerprint"] = digest.hexdigest()[:16]
    written = schema.folder / f"{_FILE}.new"
    written.write_text(json.dumps(content, indent=1), encoding="utf-8")
    written.replace(schema.folder / _FILE)
    return replace(schema, fingerprint=str(content["fingerprint"]))


def _write_vocabulary(path: Path, known: Vocabulary) -> None:
    """Write under another name and rename: a process that has the old file mapped keeps it."""
    table = pa.table({"hash": pa.array(known.hashes), "id": known.ids})
    written = path.with_suffix(".new")
    with pa.OSFile(str(written), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    written.replace(path)


def forget_count(folder: Path) -> None:
    """Let a stored schema be for data whose number of samples is not known."""
    path = folder / _FILE
    content = json.loads(path.read_text(encoding="utf-8"))
    content["num_samples"] = None
    written = path.with_name(f"{_FILE}.new")
    written.write_text(json.dumps(content, indent=1), encoding="utf-8")
    written.replace(path)


def load_schema(folder: Path) -> DataSchema:
    """Load what ``store_schema`` stored.

    Raises:
        DataError: The folder holds no schema, or one that cannot be read.
    """
    path = folder / _FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != _VERSION:
            raise DataError(f"'{path}' has version {content['version']}, not {_VERSION}; start a new run")
        sparse = tuple(
            SparseColumn(
                **{
                    **column,
                    "encoding": Encoding(column["encoding"]),
                    "kind": None if column["kind"] is None else Kind(column["kind"]),
                }
            )
            for column in content["sparse"]
        )
        dense = tuple(DenseColumn(**column) for column in content["dense"])
        return DataSchema(dense, sparse, content["fingerprint"], content["num_samples"], folder)
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror}; start a new run") from None
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"'{path}' is not a data schema: {_first_line(error)}; start a new run") from None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]
