"""Each planted fault is found, by its text, and clean data has none."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neo.data.diagnosis import Severity, diagnose, statistics_of
from neo.data.spec import DataConfig
from neo.data.survey import survey

ROWS = 20_000


def clean() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "y": pa.array((rng.random(ROWS) < 0.25).astype(np.int8)),
        "e": pa.array(rng.random(ROWS)),
        "d": pa.array(rng.random(ROWS), mask=rng.random(ROWS) < 0.1),
        "a": pa.array((100 * rng.random(ROWS) ** 2).astype(np.int64), mask=rng.random(ROWS) < 0.1),
        "t": pa.array([f"id{number}" for number in rng.integers(0, 50, ROWS)]),
        "l": pa.array([[int(i)] * int(i % 3) for i in rng.integers(0, 90, ROWS)]),
    }


def findings(tmp_path: Path, columns: dict[str, Any], *, rows: list[int] | None = None, **given: Any) -> list[str]:
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=3000)
    config: dict[str, Any] = {"categorical": ["a", "t"], "lists": ["l"], **given}
    data = DataConfig(name="parquet", path=str(path), label="y", dense=["d", "e"], **config)
    assert data.validate() == []
    spec = data.to_spec()
    limits = (rows or [2**40] * len(spec.features)) if spec.encoding == "identity" else None
    found = survey(spec, table_rows=limits, progress=lambda done, total: None)
    assert found.num_samples == ROWS
    return [str(finding) for finding in diagnose(spec, found, rows)]


IDENTITY: dict[str, Any] = {"categorical": ["a"], "encoding": "identity", "rows": [100, 90]}


def test_clean_data_has_no_finding(tmp_path: Path) -> None:
    assert findings(tmp_path, clean()) == []
    assert findings(tmp_path, clean(), **IDENTITY) == []
    assert findings(tmp_path, clean(), rows=[102, 52, 92]) == []


def planted(name: str) -> dict[str, Any]:
    columns = clean()
    values = {key: np.array(column.to_numpy(zero_copy_only=False)) for key, column in columns.items() if key in "yda"}
    if name == "id out of range":
        values["a"] = np.nan_to_num(values["a"], nan=5)
        values["a"][[7000, 9000]] = (100, -1)
        columns["a"] = pa.array(values["a"].astype(np.int64))
    elif name == "constant ids":
        columns["t"] = pa.array(["same"] * ROWS)
    elif name == "constant dense":
        columns["d"] = pa.array([2.5] * ROWS, mask=np.arange(ROWS) % 3 == 0)
    elif name == "sorted labels":
        columns["y"] = pa.array(np.sort(values["y"]))
    elif name == "grouped labels":
        columns["y"] = pa.array(np.repeat(values["y"][: ROWS // 4], 4))
    elif name == "drift":
        rising = np.random.default_rng(1).random(ROWS) < np.linspace(0.1, 0.4, ROWS)
        columns["y"] = pa.array(rising.astype(np.int8))
    elif name == "not finite":
        values["d"] = np.nan_to_num(values["d"], nan=0.5)
        values["d"][[3100, 4100]] = (np.nan, np.inf)
        columns["d"] = pa.array(values["d"], pa.float64(), mask=np.arange(ROWS) == 3)
    elif name == "too large":
        columns["d"] = pa.array([1e39, *range(ROWS - 1)], pa.float64())
    elif name == "nulls":
        columns["t"] = pa.array(["a", "b"] * 400 + [None] * (ROWS - 800))
    elif name == "many nulls":
        columns["t"] = pa.array(["a", "b", None, None, None] * (ROWS // 5))
    elif name == "all null":
        columns["a"] = pa.array([None] * ROWS, pa.int32())
    elif name == "missing label":
        columns["y"] = pa.array(values["y"], mask=np.arange(ROWS) == 4500)
    elif name == "wrong label":
        columns["y"] = pa.array(np.where(np.arange(ROWS) % 4000 == 3999, 2, values["y"]))
    elif name == "one class":
        columns["y"] = pa.array([0] * ROWS)
    elif name == "duplicates":
        columns = {key: pa.concat_arrays([column[: ROWS // 2]] * 2) for key, column in columns.items()}
    elif name == "top id":
        columns["t"] = pa.array(["x", "x", "x", "y"] * (ROWS // 4))
    return columns


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("id out of range", IDENTITY, "error: column 'a': 2 values (first: '{file}', row group 2, row 1000) with a "
         "negative id or outside its table's rows [0, 99]; ids go from -1 to 100; use data.encoding=vocabulary or"),
        ("id out of range", {"categorical": ["a"], "encoding": "identity"}, "error: column 'a': 1 value (first: "
         "'{file}', row group 3, row 0) with a negative id"),
        ("constant ids", {}, "warning: column 't': is constant: there is one id only; remove it"),
        ("constant dense", {}, "warning: column 'd': is constant: every value is 2.5; remove it from data.dense"),
        ("sorted labels", {}, "warning: column 'y': the labels are not shuffled: they change 0.00 times as often as"),
        ("grouped labels", {}, "warning: column 'y': the labels are not shuffled: they change 0.26 times as often as"),
        ("drift", {}, "warning: column 'y': the label rate drifts over the data, from 0.0"),
        ("not finite", {}, "error: column 'd': 2 values (first: '{file}', row group 1, row 100) with a NaN or an inf"),
        ("too large", {}, "error: column 'd': 1 value (first: '{file}', row group 0, row 0) with a value beyond 3.4"),
        ("nulls", {}, "warning: column 't': 96.0% of its values are missing"),
        ("many nulls", {}, "note: column 't': 60.0% of its values are missing"),
        ("all null", {}, "warning: column 'a': holds no value at all; remove it"),
        ("missing label", {}, "error: column 'y': 1 value (first: '{file}', row group 1, row 1500) without a label"),
        ("wrong label", {}, "error: column 'y': 5 values (first: '{file}', row group 1, row 999) with a label outside"),
        ("one class", {}, "error: column 'y': every label is 0; a model needs samples of both kinds"),
        ("duplicates", {}, "warning: 50.0% of the samples repeat an earlier one in every column; remove them"),
        ("top id", {}, "note: column 't': one id makes up 75% of all"),
        ("clean", {"rows": [50, 52, 92]}, "error: column 'a': 100 distinct ids need 102 rows, and its table has 50; "
         "raise model.num_embeddings[0], set data.min_count, or use data.encoding=hash"),
        ("clean", {"encoding": "hash", "hash_buckets": 95}, "note: column 'a': 100 distinct ids share 94 rows; raise"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_the_only_finding(name: str, given: dict[str, Any], text: str, tmp_path: Path) -> None:
    found = findings(tmp_path, planted(name), **given)
    assert found and found[0].startswith(text.format(file=tmp_path / "data.parquet")), found
    assert found[1:] == []


def test_text_files_are_surveyed_too_and_bad_lines_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "day_0"
    lines = []
    for label in rng.integers(0, 2, 300):
        ids = [f"{number:x}" for number in rng.integers(0, 9, 26)]
        lines.append("\t".join([str(label), *map(str, rng.integers(-1, 90, 13)), *ids]))
    path.write_text("\n".join(lines))
    spec = DataConfig(name="criteo", path=str(path)).to_spec()
    found = survey(spec, table_rows=None, progress=lambda done, total: None)
    assert diagnose(spec, found, None) == []
    lines[200] = lines[200][:-1] + "g"
    path.write_text("\n".join(lines))
    (finding,) = diagnose(spec, survey(spec, table_rows=None, progress=lambda done, total: None), None)[:1]
    assert finding.severity is Severity.ERROR
    assert "line 201: column 'C26'" in finding.problem


def test_a_column_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("y,d,a\n1,2,x\n0,oops,y\n7,3,z\n")
    data = DataConfig(name="csv", path=str(path), label="y", dense=["d"], categorical=["a"]).to_spec()
    found = survey(data, table_rows=None, progress=lambda done, total: None)
    texts = [str(finding) for finding in diagnose(data, found, None)]
    assert any("line 3: column 'd': 'oops' is not a number; write numbers" in text for text in texts)
    assert any("line 4) with a label outside [0, 1]" in text for text in texts)


def test_statistics_hold_every_occurrence(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    ids = np.repeat(np.arange(40), np.arange(40, 0, -1) ** 2)
    table = {"y": np.arange(ids.size) % 2, "a": pa.array(ids, mask=ids == 39), "b": np.zeros(ids.size, dtype=np.int64)}
    pq.write_table(pa.table(table), path)
    spec = DataConfig(name="parquet", path=str(path), label="y", categorical=["a", "b"]).to_spec()
    statistics = statistics_of(survey(spec, table_rows=None, progress=lambda done, total: None))
    first, second = statistics.features
    assert (first.num_ids, first.num_missing, first.num_distinct, first.is_exact) == (ids.size - 1, 1, 39, True)
    assert first.rank_ends[:17] == (*range(1, 17), 19)
    assert first.counts[:3] == (1600, 1521, 1444) and sum(first.counts) == first.num_ids
    assert first.share_of_top(2) == pytest.approx(3121 / first.num_ids)
    assert first.share_of_top(10**9) == 1.0
    assert (second.num_distinct, second.zipf_exponent, second.counts) == (1, None, (ids.size,))


def test_weights_that_do_not_fit_their_ids(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    good = {"y": [0, 1, 1], "a": [[1, 2], [3], []], "w": [[0.5, None], [1.0], []]}
    config = DataConfig(name="parquet", path=str(path), label="y", lists=["a"], list_weights=["w"])
    texts = []
    for weights in (good["w"], [[0.5, 1.0], [float("inf")], []], [[0.5], [1.0], []]):
        pq.write_table(pa.table({**good, "w": weights}), path)
        spec = config.to_spec()
        found = survey(spec, table_rows=None, progress=lambda done, total: None)
        texts.append([str(finding) for finding in diagnose(spec, found, None)])
    assert texts[0] == []
    for found_texts, row in zip(texts[1:], (1, 0), strict=True):
        (text,) = found_texts
        assert text.startswith("error: column 'a': 1 value (first: ") and f"row {row}) whose weights are not" in text
