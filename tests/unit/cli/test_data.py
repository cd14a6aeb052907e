"""``neo data check``: what is typed, what is printed, what is written, and how it ends."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neo.cli.data_check import overrides_of
from neo.cli.main import main
from neo.data.statistics_file import read_statistics
from neo.errors import ConfigError

ROWS = 4000


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "clicked": rng.integers(0, 2, ROWS),
        "price": rng.random(ROWS),
        "user": np.floor(1000 ** rng.random(ROWS)).astype(np.int64),
        "it's": pa.array([f"id{number}" for number in rng.integers(0, 50, ROWS)]),
        "seen": pa.array([[int(i)] * int(i % 3) for i in rng.integers(0, 90, ROWS)]),
    }
    path = tmp_path / "its data.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def test_columns_get_roles_by_their_types(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", str(file), "data.label=clicked", "--out", "sub/found.json"]) == 0
    told = capsys.readouterr().out
    assert "4,000 samples, label rate 0." in told
    for line in ("data.label=clicked", "data.dense=[price]", "data.categorical=[user,it's]", "data.lists=[seen]"):
        assert line in told
    assert "nothing was found" in told
    statistics = read_statistics(Path("sub/found.json"))
    assert [feature.name for feature in statistics.features] == ["user", "it's", "seen"]
    assert statistics.num_samples == ROWS
    assert statistics.features[0].zipf_exponent == pytest.approx(1.0, abs=0.15)  # its density is 1 / id


def test_a_fault_ends_with_1_and_a_wrong_key_with_2(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["data.label=clicked", "data.categorical=[user]", "data.encoding=identity", "model.num_embeddings=[500]"]
    assert main(["data", "check", str(file), *given]) == 1
    told = capsys.readouterr().out
    assert "error: column 'user': " in told and "outside its table's rows [0, 499]" in told
    assert main(["data", "check", str(file), "data.label=clickd", "data.hash_bukets=5"]) == 2
    told = capsys.readouterr().err
    assert "there is no column 'clickd'" in told and "did you mean 'clicked'" in told
    assert "hash_bukets" in told and "did you mean 'data.hash_buckets'" in told


def test_commands_that_are_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "chek"]) == 2
    assert "neo data: 'chek' is not a command; did you mean 'check'? Choices: check, prepare" in capsys.readouterr().err
    assert main(["data"]) == 0
    assert "neo data check PATH" in capsys.readouterr().out
    assert main(["data", "check", str(tmp_path / "nowhere")]) == 1
    assert "nowhere' does not exist" in capsys.readouterr().err
    path = tmp_path / "x.csv"
    path.write_text("label,a\n1,x\n")
    assert main(["data", "check", str(path), "data=synthetic"]) == 2
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    assert main(["data", "check", str(tmp_path / "broken.parquet")]) == 1
    assert "broken.parquet' cannot be read" in capsys.readouterr().err


def test_readers_are_known_by_the_names_of_files(tmp_path: Path) -> None:
    csv, raw = tmp_path / "x.csv", tmp_path / "day_0"
    csv.write_text("label,a,b,c\n1,x,0.5,7\n")
    raw.write_text("")
    assert overrides_of(csv, []) == [
        "data=csv", f"data.path='{csv}'", "data.label='label'", "data.dense=['b']", "data.categorical=['a','c']"
    ]  # fmt: skip
    assert overrides_of(csv, ["data=criteo"]) == [f"data.path='{csv}'", "data=criteo"]
    raw.write_text("0\t1")
    assert overrides_of(raw, ["data.limit_samples=5"]) == ["data=criteo", f"data.path='{raw}'", "data.limit_samples=5"]
    with pytest.raises(ConfigError, match=r"data.path: is the PATH of this command; remove it"):
        overrides_of(csv, ["data.path=other"])


def test_the_columns_of_criteo_are_known_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "day_0.parquet"
    pq.write_table(pa.table({"label": [1], "I1": pa.array([1], pa.int32()), "C1": pa.array([7], pa.uint32())}), path)
    assert overrides_of(path, [])[2:] == ["data.label='label'", "data.dense=['I1']", "data.categorical=['C1']"]
