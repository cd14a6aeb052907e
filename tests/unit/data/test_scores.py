"""Parts of scores become one file in the order of the data."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neo.data import scores
from neo.data.batch import split_evenly
from neo.data.scores import SCORES, join_parts, part_name, places_of
from neo.data.spec import DataConfig, Split
from neo.errors import DataError


def write_part(path: Path, rows: list[int]) -> Path:
    numbers = np.array(rows, dtype=np.int64)
    columns = [numbers, (numbers * 2).astype(np.float32), np.zeros(len(rows), dtype=np.float32)]
    pq.write_table(pa.table(columns, schema=SCORES), path)
    return path


@pytest.mark.parametrize("world_size", [1, 3, 5])
def test_ranks_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world_size: int) -> None:
    monkeypatch.setattr(scores, "_BATCH_ROWS", 4)  # runs are cut by batches of the file, too
    monkeypatch.setattr(scores, "_GROUP_ROWS", 10)
    total, size = 43, 8
    parts = []
    for rank in range(world_size):
        rows: list[int] = []
        for first in range(0, total, size):
            low, high = split_evenly(min(size, total - first), rank, world_size)
            rows += range(first + low, first + high)
        parts.append(write_part(tmp_path / part_name(rank), rows))
    assert join_parts(parts, tmp_path / "all", None) == total
    joined = pq.ParquetFile(tmp_path / "all")
    table = joined.read()
    assert table.schema == SCORES
    assert table.column("row").to_pylist() == list(range(total))
    assert table.column("logit").to_pylist() == [2.0 * row for row in range(total)]
    assert 2 <= joined.num_row_groups <= 6


def test_no_samples_are_an_empty_file(tmp_path: Path) -> None:
    assert join_parts([write_part(tmp_path / "0", [])], tmp_path / "all", None) == 0
    assert pq.read_table(tmp_path / "all").num_rows == 0


@pytest.mark.parametrize("rows", [[0, 1, 3], [0, 1, 1, 2]])
def test_a_row_that_is_missing_or_there_twice_is_found(tmp_path: Path, rows: list[int]) -> None:
    with pytest.raises(DataError, match=r"the scores of row 2 are missing; the next ones are those of row [13]"):
        join_parts([write_part(tmp_path / "0", rows)], tmp_path / "all", None)


def test_samples_know_their_file_and_row(tmp_path: Path) -> None:
    for name, count in (("a", 3), ("b", 0), ("c", 2)):
        pq.write_table(pa.table({"item": np.arange(count)}), tmp_path / f"{name}.parquet")
    data = DataConfig(name="parquet", path="x", val_path=str(tmp_path), label="y", categorical=["item"]).to_spec()
    part = write_part(tmp_path / "part", [0, 1, 2, 3, 4])
    join_parts([part], tmp_path / "all", places_of(data, Split.VAL))
    table = pq.read_table(tmp_path / "all")
    names = [Path(file).name for file in table.column("file").to_pylist()]
    assert names == ["a.parquet"] * 3 + ["c.parquet"] * 2
    assert table.column("file_row").to_pylist() == [0, 1, 2, 0, 1]


def test_places_are_known_where_reading_is_not_needed_to_tell(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("item\n1\n")
    csv = DataConfig(name="csv", path="x", val_path=str(tmp_path), label="y", categorical=["item"])
    assert places_of(csv.to_spec(), Split.VAL) is None
    csv.val_path = str(tmp_path / "b.csv")
    assert places_of(csv.to_spec(), Split.VAL) is not None
    assert places_of(DataConfig().to_spec(), Split.VAL) is None
