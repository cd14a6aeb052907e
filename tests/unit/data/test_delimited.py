"""Criteo's format and CSV against a naive reading, line by line."""

import csv
import gzip
import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from neo.data.batch import Batch
from neo.data.hashing import hash_texts
from neo.data.loader import GlobalBatchLoader

BUCKETS = 1000


def naive_criteo(lines: list[str]) -> tuple[list[float], list[list[float]], list[list[int]]]:
    texts = sorted({text for line in lines for text in line.rstrip("\n").split("\t")[14:]})
    rows = {text: 1 + int(h) % (BUCKETS - 1) for text, h in zip(texts, hash_texts(pa.array(texts)), strict=True)}
    rows[""] = 0
    labels, dense, ids = [], [], []
    for line in lines:
        fields = line.rstrip("\n").split("\t")
        labels.append(float(fields[0]))
        dense.append([math.log1p(max(int(text), 0)) if text else 0.0 for text in fields[1:14]])
        ids.append([rows[text] for text in fields[14:]])
    return labels, dense, ids


def generated_criteo(num_rows: int) -> str:
    rng = random.Random(1)
    lines = []
    for _ in range(num_rows):
        dense = [rng.choice(["", str(rng.randint(-3, 99999))]) for _ in range(13)]
        ids = [rng.choice(["", f"{rng.getrandbits(32):08x}"]) for _ in range(26)]
        lines.append("\t".join([str(rng.randint(0, 1)), *dense, *ids]))
    return "\n".join(lines) + "\n"


def check_criteo(batches: list[Batch], lines: list[str]) -> None:
    labels, dense, ids = naive_criteo(lines)
    assert torch.cat([batch.labels for batch in batches]).tolist() == labels
    assert torch.equal(torch.cat([batch.dense for batch in batches]), torch.tensor(dense, dtype=torch.float32))
    found = [row for batch in batches for row in batch.sparse.values.view(26, batch.batch_size).T.tolist()]
    assert found == ids
    assert all(bool((batch.sparse.lengths == 1).all()) for batch in batches)


def test_criteo_sample_equals_a_naive_reading(criteo_sample: Path, learn: Any, load: Any) -> None:
    spec, schema = learn(name="criteo", path=str(criteo_sample), hash_buckets=BUCKETS, shuffle=False)
    batches = load(spec, schema, size=64)
    check_criteo(batches, criteo_sample.read_text().splitlines())
    assert [batch.batch_size for batch in batches] == [64, 64, 64, 8]
    assert sum(float(batch.labels.sum()) for batch in batches) == 49
    assert {feature.num_embeddings for feature in schema.features} == {BUCKETS}


def test_generated_criteo_in_a_folder_equals_a_naive_reading(learn: Any, load: Any, write_text: Any) -> None:
    text = generated_criteo(300)
    lines = text.splitlines(keepends=True)
    write_text("".join(lines[:100]), name="days/day_0")
    write_text("".join(lines[100:250]).replace("\n", "\r\n"), name="days/day_1")
    with gzip.open(write_text("x", name="days/day_2.gz"), "wt") as stream:
        stream.write("".join(lines[250:]))
    folder = write_text("", name="days/_SUCCESS").parent
    spec, schema = learn(name="criteo", path=str(folder), hash_buckets=BUCKETS, shuffle=False)
    check_criteo(load(spec, schema, size=64), lines)
    assert {feature.pooling_factor for feature in schema.features} == {1.0}


CSV: dict[str, Any] = {
    "name": "csv",
    "label": "click",
    "dense": ["price"],
    "categorical": ["city", "zip"],
    "lists": ["tags"],
    "shuffle": False,
}


def test_csv_equals_a_naive_reading(learn: Any, load: Any, bags: Any, tmp_path: Path) -> None:
    rng = random.Random(2)
    rows = [
        {
            "unused": "x,y",
            "tags": "|".join(rng.choice(["", "7", "red"]) for _ in range(rng.randint(0, 3))),
            "zip": rng.choice(["00123", "123", ""]),
            "click": rng.choice(["0", "1"]),
            "city": rng.choice(["Paris, Texas", 'the "Hague"', ""]),
            "price": rng.choice(["", "1e6", "0", "12.5"]),
        }
        for _ in range(200)
    ]
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    spec, schema = learn(path=str(path), **CSV)
    samples = [sample for batch in load(spec, schema, size=64) for sample in bags(batch)]
    encode: dict[str, dict[str, int]] = {}
    for name in ("city", "zip", "tags"):
        texts = {part for row in rows for part in (row[name].split("|") if name == "tags" else [row[name]])} - {""}
        ordered = sorted(texts, key=lambda text: int(hash_texts(pa.array([text]))[0]))
        encode[name] = {text: 2 + position for position, text in enumerate(ordered)} | {"": 0}
    for row, sample in zip(rows, samples, strict=True):
        assert sample["city"] == [encode["city"][row["city"]]]
        assert sample["zip"] == [encode["zip"][row["zip"]]]
        parts = row["tags"].split("|") if row["tags"] else []
        assert sample["tags"] == [encode["tags"][part] for part in parts]
    assert len(encode["zip"]) == 3  # text stays text: '00123' is not '123'


def test_csv_weights_labels_and_identity(learn: Any, load: Any, write_text: Any) -> None:
    path = write_text("\ufeffy,l,w,a\nTrue,1|2,0.5|2,3\n\nfalse,,,0\nTRUE,3,1.5,\n")
    spec, schema = learn(
        name="csv",
        path=str(path),
        label="y",
        categorical=["a"],
        lists=["l"],
        list_weights=["w"],
        encoding="identity",
        shuffle=False,
    )
    batch = load(spec, schema)[0]
    assert batch.labels.tolist() == [1, 0, 1]
    assert batch.sparse.lengths_by_feature.tolist() == [[1, 1, 1], [2, 0, 1]]
    assert batch.sparse.values.tolist() == [3, 0, 4, 1, 2, 3]
    assert batch.sparse.weights.tolist() == [1, 1, 1, 0.5, 2, 1.5]


def test_length_is_known_where_counting_is_cheap(learn: Any, write_text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_text("y,a\r\n1,x\r\n\r\n0,y\r\n\n1,z")
    spec, schema = learn(name="csv", path=str(path), val_path=str(path), label="y", categorical=["a"])

    def loader(split: str, limit: int | None = None) -> GlobalBatchLoader:
        return GlobalBatchLoader(
            spec, schema, split=split, global_batch_size=2, rank=0, world_size=1, seed=0, limit_samples=limit
        )

    assert (len(loader("train")), loader("train").num_samples) == (2, 3)
    assert len(loader("train", limit=1)) == 1
    monkeypatch.setattr("neo.data.delimited._COUNTED_BYTES", 1)
    assert len(loader("train")) == 2  # the learning pass counted
    with pytest.raises(TypeError, match="the number of val samples is not known before all files are read"):
        len(loader("val"))
