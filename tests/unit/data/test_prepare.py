"""Raw Criteo to Parquet: every value kept, bad lines named, finished files kept, partial ones redone."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neo.cli.main import main
from neo.data import prepare as prepare_module
from neo.data.criteo_lines import Ids, LineParser, hexadecimal_numbers
from neo.data.spec import CRITEO_CATEGORICAL, CRITEO_DENSE


def line(seed: int, **changed: str) -> str:
    """Return a line whose values follow from ``seed``; some are missing."""
    fields = {"label": str(seed % 2)}
    for place, name in enumerate(CRITEO_DENSE):
        fields[name] = "" if (seed + place) % 5 == 0 else str((seed * 31 + place) % 70_000 - 3)
    for place, name in enumerate(CRITEO_CATEGORICAL):
        digits = f"{(seed * 2654435761 + place * 40503) % 2**32:08x}"
        fields[name] = "" if (seed + place) % 7 == 0 else digits if seed % 3 else digits.lstrip("0").upper()
    return "\t".join({**fields, **changed}.values())


def expected(seeds: range) -> dict[str, list[Any]]:
    rows = [line(seed).split("\t") for seed in seeds]
    columns = dict(zip(("label", *CRITEO_DENSE, *CRITEO_CATEGORICAL), zip(*rows, strict=True), strict=True))
    base = {name: 16 if name in CRITEO_CATEGORICAL else 10 for name in columns}
    return {name: [int(text, base[name]) if text else None for text in texts] for name, texts in columns.items()}


def write(path: Path, lines: list[str], end: str = "\n") -> Path:
    text = "".join(f"{text}{end}" for text in lines).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def run(*arguments: object) -> int:
    return main(["data", "prepare", *map(str, arguments)])


def test_every_value_is_kept_in_bounded_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prepare_module, "_BLOCK_BYTES", 10_000)
    raw = tmp_path / "raw"
    write(raw / "day_0", [line(seed) for seed in range(2500)])
    write(raw / "day_1.gz", [line(seed) for seed in range(2500, 3000)], end="\r\n")
    out = tmp_path / "out"
    assert run(raw, "--out", out, "--row-group-size", 1024) == 0
    assert "3,000 samples in 2 files" in capsys.readouterr().out
    assert sorted(file.name for file in out.iterdir()) == ["day_0.parquet", "day_1.parquet"]
    for name, seeds in (("day_0", range(2500)), ("day_1", range(2500, 3000))):
        with pq.ParquetFile(out / f"{name}.parquet") as opened:
            assert opened.read().to_pydict() == expected(seeds)
            kinds = {field.name: field.type for field in opened.schema_arrow}
            sizes = [opened.metadata.row_group(group).num_rows for group in range(opened.metadata.num_row_groups)]
        assert (kinds["label"], kinds["I1"], kinds["C1"]) == (pa.int8(), pa.int32(), pa.uint32())
        assert sizes == ([1024, 1024, 452] if name == "day_0" else [500])


def test_ids_as_text_become_the_rows_of_the_raw_files(tmp_path: Path, learn: Any, load: Any) -> None:
    raw = write(tmp_path / "train.txt", [line(seed) for seed in range(300)])
    assert run(raw, "--out", tmp_path / "out", "--ids", "text") == 0
    common = {"shuffle": False, "encoding": "hash", "dense_transform": "log1p"}
    (first,) = load(*learn(name="criteo", path=str(raw), **common))
    columns = {"label": "label", "dense": list(CRITEO_DENSE), "categorical": list(CRITEO_CATEGORICAL)}
    (second,) = load(*learn(name="parquet", path=str(tmp_path / "out"), **columns, **common))
    assert first.sparse.values.tolist() == second.sparse.values.tolist()
    assert first.dense.tolist() == second.dense.tolist()
    assert first.labels.tolist() == second.labels.tolist()


BAD = [
    (line(1, I3="1.5"), "column 'I3': '1.5' is not a whole number"),
    (line(1, I3="0x1F"), "column 'I3': '0x1F' is not a whole number"),
    (line(1, I3=" 5"), "column 'I3': ' 5' is not a whole number"),
    (line(1, I3="2147483648"), "column 'I3': '2147483648' is beyond 32 bits"),
    (line(1, C2="0123456g"), "column 'C2': '0123456g' is not a hexadecimal id of at most 8 digits"),
    (line(1, C2="123456789"), "column 'C2': '123456789' is not a hexadecimal id"),
    (line(1, C2="-1"), "column 'C2': '-1' is not a hexadecimal id"),
    (line(1, label="2"), "column 'label': '2' is neither 0 nor 1"),
    (line(1, label=""), "column 'label': '' is neither 0 nor 1"),
    (line(1) + "\t", "has 41 fields instead of 40"),
    (line(1).rpartition("\t")[0], "has 39 fields instead of 40"),
]


@pytest.mark.parametrize(("text", "problem"), BAD)
def test_a_bad_line_is_named_and_nothing_half_is_left(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = write(tmp_path / "day_0", [line(0), "", line(2), text, line(3)])
    out = tmp_path / "out"
    assert run(raw, "--out", out) == 1
    told = capsys.readouterr().err
    assert f"'{raw}', line 4: {problem}" in told and "--max-bad-lines=N" in told
    assert list(out.iterdir()) == []
    assert run(raw, "--out", out, "--max-bad-lines", 1) == 0
    left_out = capsys.readouterr().err
    assert f"left out: '{raw}', line 4: {problem}" in left_out and "1 bad lines in all" in left_out
    assert pq.read_table(out / "day_0.parquet").num_rows == 3


def test_bad_lines_are_counted_over_all_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day in range(3):
        write(tmp_path / "raw" / f"day_{day}", [line(0), "oops", line(1)])
    assert run(tmp_path / "raw", "--out", tmp_path / "out", "--max-bad-lines", 2) == 1
    told = capsys.readouterr().err
    assert "day_2', line 2: has 1 field instead of 40 (3 bad lines, --max-bad-lines=2)" in told
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["day_0.parquet", "day_1.parquet"]


def test_finished_files_are_kept_and_changed_ones_redone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    for day in range(3):
        write(raw / f"day_{day}", [line(seed) for seed in range(10 * day, 10 * day + 10)])
    write(raw / "day_2", ["oops"])
    assert run(raw, "--out", out) == 1
    (out / ".day_2.parquet.part").write_bytes(b"half")  # as after a kill
    first = {name: (out / f"{name}.parquet").stat().st_mtime_ns for name in ("day_0", "day_1")}
    write(raw / "day_2", [line(seed) for seed in range(5)])
    write(raw / "day_1", [line(seed) for seed in range(4)])
    capsys.readouterr()
    assert run(raw, "--out", out) == 0
    assert "19 samples in 3 files" in (told := capsys.readouterr().out) and "(1 of them finished before)" in told
    second = {name: (out / f"{name}.parquet").stat().st_mtime_ns for name in ("day_0", "day_1")}
    assert second["day_0"] == first["day_0"] and second["day_1"] != first["day_1"]
    assert sorted(file.name for file in out.iterdir()) == [f"day_{day}.parquet" for day in range(3)]
    assert run(raw, "--out", out, "--ids", "text") == 0
    assert pq.read_schema(out / "day_0.parquet").field("C1").type == pa.string()


def test_files_without_labels(tmp_path: Path) -> None:
    raw = write(tmp_path / "test.txt", [line(seed).partition("\t")[2] for seed in range(20)])
    assert run(raw, "--out", tmp_path / "out") == 0
    assert pq.read_table(tmp_path / "out" / "test.parquet").column_names == [*CRITEO_DENSE, *CRITEO_CATEGORICAL]


def test_what_cannot_be_done_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = tmp_path / "raw"
    write(raw / "day_0", [line(0)])
    write(raw / "day_0.gz", [line(0)])
    assert run(raw, "--out", tmp_path / "out") == 1
    assert "would both become" in capsys.readouterr().err
    assert run(raw, "--out", raw) == 1
    assert "holds the raw files; choose another folder with --out" in capsys.readouterr().err
    (raw / "day_0").unlink()
    (raw / "day_0.gz").write_bytes(gzip.compress(b"x" * 10_000)[:-20])
    assert run(raw, "--out", tmp_path / "out") == 1
    assert "day_0.gz' cannot be read" in capsys.readouterr().err
    assert run(tmp_path / "nowhere", "--out", tmp_path / "out") == 1
    assert "nowhere' does not exist" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(raw, "--out", tmp_path / "out", "--max-bad-lines", "-1")
    assert "-1 is below the limit 0" in capsys.readouterr().err


def test_the_sample_of_criteo(criteo_sample: Path, tmp_path: Path) -> None:
    assert run(criteo_sample, "--out", tmp_path) == 0
    table = pq.read_table(tmp_path / "criteo_sample.parquet")
    assert table.num_rows == 200
    assert sum(table.column("label").to_pylist()) == 49
    assert table.column("C1")[0].as_py() == 0x05DB9164


def test_hexadecimal_numbers() -> None:
    texts = ["0", None, "ffffffff", "FF", "00000010", None]
    assert hexadecimal_numbers(pa.array(texts)).to_pylist() == [0, None, 2**32 - 1, 255, 16, None]
    assert hexadecimal_numbers(pa.array(texts).slice(2, 3)).to_pylist() == [2**32 - 1, 255, 16]
    assert hexadecimal_numbers(pa.array([None, None], pa.string())).to_pylist() == [None, None]
    assert hexadecimal_numbers(pa.array(["0g"])) is None
    assert hexadecimal_numbers(pa.array(["123456789"])) is None


def test_a_block_without_lines() -> None:
    parser = LineParser(Ids.INTEGER, has_label=True)
    for block in (b"\n", b"\n\n", b"\r\n"):
        table, bad = parser.parse(block, 1)
        assert (table.num_rows, table.schema, bad) == (0, parser.schema, [])
    assert np.issubdtype(parser.schema.field("C1").type.to_pandas_dtype(), np.uint32)
