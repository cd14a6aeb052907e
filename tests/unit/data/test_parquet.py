"""Parquet against a naive reading, sample by sample."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from neo.data.batch import Batch
from neo.data.hashing import hash_integers, hash_texts

COLUMNS: dict[str, Any] = {
    "name": "parquet",
    "label": "click",
    "dense": ["age", "price"],
    "categorical": ["user", "city"],
    "lists": ["tags", "words"],
    "shuffle": False,
}


def table(num_rows: int = 500, seed: int = 0) -> dict[str, list[Any]]:
    """Make columns with integers, texts, lists and gaps."""
    rng = random.Random(seed)

    def gap(value: Any) -> Any:
        return None if rng.random() < 0.1 else value

    return {
        "click": [rng.randint(0, 1) for _ in range(num_rows)],
        "age": [gap(rng.randint(-5, 90)) for _ in range(num_rows)],
        "price": [gap(rng.uniform(0, 1e6)) for _ in range(num_rows)],
        "user": [gap(rng.randint(0, 40)) for _ in range(num_rows)],
        "city": [gap(rng.choice(["Rome", "Oslo", "", "Llanfairpwllgwyngyll"])) for _ in range(num_rows)],
        "tags": [gap([gap(rng.randint(0, 9)) for _ in range(rng.randint(0, 4))]) for _ in range(num_rows)],
        "words": [gap([gap(rng.choice("abcd")) for _ in range(rng.randint(0, 3))]) for _ in range(num_rows)],
    }


def hash_of(value: Any) -> int:
    if isinstance(value, str):
        return int(hash_texts(pa.array([value]))[0])
    return int(hash_integers(np.array([value], dtype=np.int64))[0])


def ids_of(value: Any) -> list[Any]:
    """A null list is one missing id, an empty one an empty bag."""
    return list(value) if isinstance(value, list) else [value]


def naive_rows(columns: dict[str, list[Any]], encoding: str, buckets: int = 0) -> list[dict[str, list[int]]]:
    names = [*COLUMNS["categorical"], *COLUMNS["lists"]]
    encode: dict[str, Callable[[Any], int]] = {}
    for name in names:
        known = {i for value in columns[name] for i in ids_of(value) if i is not None}
        if encoding == "vocabulary":
            rows = {value: 2 + p for p, value in enumerate(sorted(known, key=hash_of))}
            encode[name] = lambda i, rows=rows: 0 if i is None else rows.get(i, 1)  # type: ignore[misc]
        elif encoding == "hash":
            encode[name] = lambda i: 0 if i is None else 1 + hash_of(i) % (buckets - 1)
        else:
            last = max(known) + 1
            encode[name] = lambda i, last=last: last if i is None else i  # type: ignore[misc]
    return [
        {name: [encode[name](i) for i in ids_of(columns[name][row])] for name in names}
        for row in range(len(columns["click"]))
    ]


def all_bags(batches: list[Batch], bags: Callable[[Batch], Any]) -> list[Any]:
    return [sample for batch in batches for sample in bags(batch)]


@pytest.mark.parametrize("encoding", ["vocabulary", "hash"])
def test_equals_a_naive_reading(encoding: str, learn: Any, load: Any, bags: Any, write_parquet: Any) -> None:
    columns = table()
    path = write_parquet(columns, row_group_size=77)
    extra = {"hash_buckets": 13} if encoding == "hash" else {}
    spec, schema = learn(path=str(path), encoding=encoding, **COLUMNS, **extra)
    batches = load(spec, schema, size=64)
    assert [batch.batch_size for batch in batches] == [64] * 7 + [52]
    assert all_bags(batches, bags) == naive_rows(columns, encoding, buckets=13)
    assert torch.cat([batch.labels for batch in batches]).tolist() == columns["click"]
    for index, name in enumerate(COLUMNS["dense"]):
        known = np.array([value for value in columns[name] if value is not None], dtype=np.float64)
        expected = [0.0 if v is None else (v - known.mean()) / known.std() for v in columns[name]]
        found = torch.cat([batch.dense[:, index] for batch in batches]).tolist()
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)  # float32
    assert {batch.sparse.values.dtype for batch in batches} == {torch.int64}
    assert {batch.dense.dtype for batch in batches} == {torch.float32}


def test_schema_knows_rows_and_mean_ids(learn: Any, write_parquet: Any) -> None:
    columns = table()
    schema = learn(path=str(write_parquet(columns)), **COLUMNS)[1]
    features = {feature.name: feature for feature in schema.features}
    assert list(features) == ["user", "city", "tags", "words"]
    assert features["user"].num_embeddings == 2 + len({v for v in columns["user"] if v is not None})
    assert features["user"].pooling_factor == 1
    mean = sum(len(ids_of(value)) for value in columns["tags"]) / 500
    assert features["tags"].pooling_factor == pytest.approx(mean)
    assert schema.dense_names == ("age", "price")
    assert schema.num_samples == 500


def test_types_of_columns_do_not_matter(learn: Any, load: Any, write_parquet: Any, tmp_path: Path) -> None:
    columns = table()
    plain = write_parquet(columns)
    spec, schema = learn(path=str(plain), **COLUMNS)
    expected = load(spec, schema, size=500)[0]
    typed = dict(columns)
    typed["click"] = pa.array([bool(value) for value in columns["click"]])
    typed["age"] = pa.array(columns["age"], pa.float32())
    typed["user"] = pa.array([math.nan if v is None else float(v) for v in columns["user"]])
    typed["city"] = pa.array(columns["city"]).dictionary_encode()
    typed["tags"] = pa.array(columns["tags"], pa.large_list(pa.int16()))
    other = write_parquet(typed, name="typed/data.parquet", row_group_size=90)
    again, same = learn(path=str(other.parent), **COLUMNS)
    found = load(again, same, size=500)[0]
    assert torch.equal(found.sparse.values, expected.sparse.values)
    assert torch.equal(found.sparse.lengths, expected.sparse.lengths)
    assert torch.equal(found.dense, expected.dense)
    assert torch.equal(found.labels, expected.labels)


def test_unseen_and_missing_ids_have_rows_of_their_own(learn: Any, load: Any, write_parquet: Any) -> None:
    train = write_parquet({"y": [0, 1, 0], "a": ["x", "y", None]}, name="train.parquet")
    val = write_parquet({"y": [0, 1, 1, 0], "a": ["y", "new", None, "x"]}, name="val.parquet")
    spec, schema = learn(name="parquet", path=str(train), val_path=str(val), label="y", categorical=["a"])
    assert schema.features[0].num_embeddings == 4
    values = load(spec, schema, split="val")[0].sparse.values.tolist()
    assert values[1:3] == [1, 0]
    assert sorted([values[0], values[3]]) == [2, 3]


def test_identity(learn: Any, load: Any, write_parquet: Any, bags: Any) -> None:
    columns = {key: table()[key] for key in ("click", "user", "tags")}
    path = write_parquet(columns)
    config = {"name": "parquet", "label": "click", "categorical": ["user"], "lists": ["tags"], "shuffle": False}
    spec, schema = learn(path=str(path), encoding="identity", **config)
    assert [feature.num_embeddings for feature in schema.features] == [42, 11]  # largest id + 1, + the missing row
    found = all_bags(load(spec, schema), bags)
    last = {"user": 41, "tags": 10}
    for row, sample in enumerate(found):
        for name, rows in sample.items():
            assert rows == [last[name] if i is None else i for i in ids_of(columns[name][row])]
    spec, schema = learn(path=str(path), encoding="identity", num_embeddings=[100, 50], **config)
    assert [feature.num_embeddings for feature in schema.features] == [101, 51]


def test_weighted_lists(learn: Any, load: Any, write_parquet: Any) -> None:
    path = write_parquet(
        {
            "y": [1, 0, 1],
            "a": [7, 8, 9],
            "l": [[1, 2], [], None],
            "w": [[0.5, 2.0], [], None],
            "u": [[3], [4, 5], [6]],
        }
    )
    config = {"name": "parquet", "label": "y", "categorical": ["a"], "lists": ["l", "u"], "shuffle": False}
    spec, schema = learn(path=str(path), list_weights=["w", None], **config)
    assert [feature.weighted for feature in schema.features] == [False, True, False]
    batch = load(spec, schema)[0]
    assert batch.sparse.weighted == (False, True, False)
    assert batch.sparse.lengths_by_feature.tolist() == [[1, 1, 1], [2, 0, 1], [1, 2, 1]]
    assert batch.sparse.weights is not None
    assert batch.sparse.weights.tolist() == [1, 1, 1, 0.5, 2.0, 1.0, 1, 1, 1, 1]
    unweighted, schema = learn(path=str(path), **config)
    assert load(unweighted, schema)[0].sparse.weights is None


def test_num_embeddings_of_a_vocabulary(learn: Any, write_parquet: Any) -> None:
    from neo.errors import ConfigError

    path = write_parquet({"y": [0, 1, 0], "a": ["x", "y", "z"]})
    config = {"name": "parquet", "path": str(path), "label": "y", "categorical": ["a"]}
    assert learn(num_embeddings=[100], **config)[1].features[0].num_embeddings == 100
    with pytest.raises(ConfigError, match="4 rows are too few for 'a': its vocabulary needs 5; write at least 5"):
        learn(num_embeddings=[4], **config)
    with pytest.raises(ConfigError, match=r"model\.num_embeddings: has 2 entries for 1 sparse features"):
        learn(num_embeddings=[9, 9], **config)
    hashed = learn(num_embeddings=[7], **config, encoding="hash")[1]
    assert hashed.features[0].num_embeddings == 7


def test_limit_is_the_first_samples_of_the_files(learn: Any, load: Any, write_parquet: Any) -> None:
    path = write_parquet({"y": [0, 1] * 500, "a": list(range(1000))}, row_group_size=100)
    config = {"name": "parquet", "path": str(path), "label": "y", "categorical": ["a"], "encoding": "identity"}
    spec, schema = learn(**config)
    for epoch in (0, 1):
        values = torch.cat([b.sparse.values for b in load(spec, schema, size=40, limit=250, epoch=epoch)]).tolist()
        assert values != sorted(values)
        assert sorted(values) == list(range(250))


@pytest.mark.parametrize("encoding", ["vocabulary", "hash", "identity"])
def test_texts_are_the_same_however_they_are_stored(encoding: str, learn: Any, load: Any, write_parquet: Any) -> None:
    rng = random.Random(5)
    texts = [rng.choice([None, *map(str, range(200))]) for _ in range(3000)]
    config = {"name": "parquet", "label": "y", "categorical": ["a"], "encoding": encoding, "shuffle_window": 700}
    stored = {
        "plain": pa.array(texts, pa.string()),
        "large": pa.array(texts, pa.large_string()),
        "binary": pa.array([None if text is None else text.encode() for text in texts], pa.binary()),
        "dictionary": pa.array(texts).dictionary_encode(),
        "chunks": pa.chunked_array([pa.array(texts[i : i + 250]).dictionary_encode() for i in range(0, 3000, 250)]),
    }
    found = {}
    for name, column in stored.items():
        path = write_parquet({"y": [0] * 3000, "a": column}, name=f"{name}.parquet", row_group_size=500)
        spec, schema = learn(path=str(path), **config)
        found[name] = torch.cat([batch.sparse.values for batch in load(spec, schema, size=128)])
        if encoding == "vocabulary":
            ids = pa.ipc.open_file(str(schema.folder / "vocabulary_0000.arrow")).read_all().column("id")
            assert sorted(map(int, ids.to_pylist())) == sorted({int(text) for text in texts if text is not None})
    for values in found.values():
        assert torch.equal(values, found["plain"])
    assert len(set(found["plain"].tolist())) == 201 or encoding == "hash"
