"""Samples without labels are read by every reader of files, where no labels are asked for."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from .conftest import Learn, Load

CRITEO = "{label}" + "\t".join([*map(str, range(13)), *(f"{number:x}" for number in range(26))]) + "\n"


def test_criteo_with_and_without_its_first_field(tmp_path: Path, learn: Learn, load: Load) -> None:
    (tmp_path / "train.txt").write_text(CRITEO.format(label="1\t") * 3)
    (tmp_path / "test.txt").write_text(CRITEO.format(label="") * 3)
    spec, schema = learn(name="criteo", path=str(tmp_path / "train.txt"), hash_buckets=50)
    unlabelled = replace(spec, label=None)
    (labelled,) = load(spec, schema)
    found = [
        *load(replace(unlabelled, path=tmp_path / "test.txt"), schema),
        *load(replace(unlabelled, path=tmp_path / "train.txt"), schema),
    ]
    assert labelled.labels.tolist() == [1, 1, 1]
    for batch in found:
        assert batch.labels.tolist() == [0, 0, 0]
        assert torch.equal(batch.dense, labelled.dense)
        assert torch.equal(batch.sparse.values, labelled.sparse.values)


def test_csv_and_parquet_without_the_column(tmp_path: Path, learn: Learn, load: Load) -> None:
    (tmp_path / "train.csv").write_text("click,item\n1,a\n0,b\n")
    (tmp_path / "new.csv").write_text("item\nb\na\n")
    pq.write_table(pa.table({"item": ["b", "a"]}), tmp_path / "new.parquet")
    spec, schema = learn(name="csv", path=str(tmp_path / "train.csv"), label="click", categorical=["item"])
    for name in ("csv", "parquet"):
        data = replace(spec, name=name, label=None, val_path=tmp_path / f"new.{name}")
        (batch,) = load(data, schema, split="val")
        (known,) = load(replace(spec, shuffle=False), schema)
        assert batch.sparse.values.tolist() == known.sparse.values.flip(0).tolist()
