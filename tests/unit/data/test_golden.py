"""What a file becomes does not change with how fast it is read: digests of all batches, bit by bit."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from neo.data.batch import Batch
from neo.data.hashing import mix

_ROWS = 5_003


def _draw(stream: int, below: int) -> Any:
    """Return numbers that no library's generator decides."""
    numbers = mix(np.arange(_ROWS, dtype=np.uint64) + np.uint64(stream * 1_000_003))
    return (numbers % np.uint64(below)).astype(np.int64)


def _holes(stream: int, one_in: int) -> Any:
    return _draw(stream, one_in) == 0


def _columns() -> dict[str, Any]:
    texts = [f"id-{number * 7919}" for number in range(500)]
    return {
        "label": pa.array(_draw(1, 2).astype(np.int8)),
        "d_float": pa.array(_draw(2, 1000) / 8, pa.float32(), mask=_holes(3, 20)),
        "d_double": pa.array(_draw(4, 1000) / 3, pa.float64()),
        "d_int": pa.array(_draw(5, 50) - 3, pa.int32(), mask=_holes(6, 9)),
        "d_bool": pa.array(_draw(7, 2) == 1, mask=_holes(8, 9)),
        "i8": pa.array(_draw(9, 100).astype(np.int8), mask=_holes(10, 30)),
        "u16": pa.array(_draw(11, 60_000).astype(np.uint16)),
        "i32": pa.array(_draw(12, 3000).astype(np.int32), mask=_holes(13, 30)),
        "i64": pa.array(_draw(14, 3000), mask=_holes(15, 30)),
        "u64": pa.array(_draw(16, 3000).astype(np.uint64)),
        "f64": pa.array(_draw(17, 40).astype(np.float64), mask=_holes(18, 30)),
        "flag": pa.array(_draw(19, 2) == 1),
        "text": pa.array(texts).take(pa.array(_draw(20, 500), mask=_holes(21, 30))),
        "bags": pa.array([[int(i) % 90] * (int(i) % 4) for i in _draw(22, 4000)]),
    }


DENSE = ["d_float", "d_double", "d_int", "d_bool"]
WHOLE = ["i8", "u16", "i32", "i64", "u64", "f64", "flag"]
CASES: dict[str, dict[str, Any]] = {
    "identity": {"categorical": WHOLE, "encoding": "identity", "dense_transform": "log1p"},
    "identity_lists": {"categorical": WHOLE, "lists": ["bags"], "encoding": "identity", "dense_transform": "none"},
    "hash": {"categorical": [*WHOLE, "text"], "encoding": "hash", "hash_buckets": 1001, "dense_transform": "log1p"},
    "vocabulary": {"categorical": [*WHOLE, "text"], "encoding": "vocabulary", "dense_transform": "standardize"},
    "vocabulary_lists": {"categorical": ["text", "i32"], "lists": ["bags"], "encoding": "vocabulary"},
    "vocabulary_of_a_part": {"categorical": [*WHOLE, "text"], "encoding": "vocabulary", "limit_samples": 900},
}
DIGESTS: dict[str, tuple[str, ...]] = {
    "identity": ("95f0dfabdee291a2", "5d88053dccf62220", "7fdafc07edc543c2", "1e51c1e0f66974b9"),
    "identity_lists": ("f878d119091b0e20", "4bf06bdb0f66ec52", "fa5e1aadfcc79d4c", "cad3508a18a71225"),
    "hash": ("c60593d9c7c171be", "40b0af2ab9a7e5f6", "c6290ec1544d2e34", "9d66a4d828eb535a"),
    "vocabulary": ("19e5535b3f99ce7d", "15f6a89fc530bc77", "93dc55c18912e7f9", "2b2fcfbf88c585d1"),
    "vocabulary_lists": ("0bfa6231c632251a", "8aceec922cfe3ceb", "e0ce440caa1ab600", "aac40d784b23c0ea"),
    "vocabulary_of_a_part": ("2d48345af2a0548d", "8f9a1dd5a84b46e6", "c803a63072f68d11", "3c7b25b5fa38940c"),
}


def _digest(batches: list[Batch]) -> str:
    digest = hashlib.sha256()
    for batch in batches:
        for tensor in (batch.dense, batch.labels, batch.sparse.lengths, batch.sparse.values):
            digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


@pytest.mark.parametrize("name", CASES)
def test_batches_are_those_of_the_first_reader(name: str, learn: Any, load: Any, write_parquet: Any) -> None:
    columns = _columns()
    first = {key: column.slice(0, 3000) for key, column in columns.items()}
    second = {key: column.slice(3000) for key, column in columns.items()}
    write_parquet(first, name="folder/0.parquet", row_group_size=700)
    folder: Path = write_parquet(second, name="folder/1.parquet", row_group_size=900).parent
    spec, schema = learn(
        name="parquet", path=str(folder), label="label", dense=DENSE, shuffle_window=1024, seed=3, **CASES[name]
    )
    found = _digest(load(spec, schema, size=256, seed=5, epoch=1))
    parts = [_digest(load(spec, schema, size=100, rank=rank, world_size=3, seed=5)) for rank in range(3)]
    assert (found, *parts) == DIGESTS[name]


@pytest.mark.parametrize("name", ["identity", "vocabulary"])
def test_files_may_differ_in_the_width_of_their_numbers(name: str, learn: Any, load: Any, write_parquet: Any) -> None:
    columns = _columns()
    wider = {"i8": pa.int64(), "u16": pa.int32(), "i32": pa.int8(), "d_int": pa.float64(), "d_float": pa.float64()}
    columns["i32"] = pa.array(_draw(12, 100).astype(np.int32))
    digests = []
    for widen in (False, True):
        kinds = wider if widen else {}
        second = {key: column.slice(3000).cast(kinds.get(key, column.type)) for key, column in columns.items()}
        write_parquet({key: column.slice(0, 3000) for key, column in columns.items()}, name="folder/0.parquet")
        folder: Path = write_parquet(second, name="folder/1.parquet").parent
        spec, schema = learn(name="parquet", path=str(folder), label="label", dense=DENSE, seed=3, **CASES[name])
        digests.append(_digest(load(spec, schema, size=256)))
    assert digests[0] == digests[1]
