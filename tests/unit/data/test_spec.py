from pathlib import Path
from typing import Any

import pytest

from neo.data.spec import READERS, DataConfig, DenseTransform, Encoding, Split


def findings(**config: Any) -> dict[str, str]:
    return {finding.key: str(finding) for finding in DataConfig(**config).validate()}


def test_the_default_is_synthetic_and_right() -> None:
    assert findings() == {}
    spec = DataConfig().to_spec()
    assert (spec.name, spec.num_samples, spec.val_samples, spec.is_generated) == ("synthetic", 1_000_000, 100_000, True)
    assert spec.dense_transform is DenseTransform.NONE
    assert spec.has_validation
    assert DataConfig(val_samples=0).to_spec().has_validation is False


def test_every_reader_is_found() -> None:
    for name in READERS:
        assert callable(READERS.get(name))


def test_defaults_differ_by_reader(tmp_path: Path) -> None:
    path = tmp_path / "train"
    path.write_text("x")
    criteo = DataConfig(name="criteo", path=str(path)).to_spec()
    assert (criteo.encoding, criteo.dense_transform) == (Encoding.HASH, DenseTransform.LOG1P)
    assert (criteo.dense[0], criteo.dense[-1], criteo.features[0], criteo.features[-1]) == ("I1", "I13", "C1", "C26")
    assert criteo.shuffle
    csv = DataConfig(name="csv", path=str(path), label="y", categorical=["a"], lists=["b"]).to_spec()
    assert (csv.encoding, csv.dense_transform) == (Encoding.VOCABULARY, DenseTransform.STANDARDIZE)
    assert csv.list_weights == (None,)
    assert csv.path_of(Split.TRAIN) == path
    with pytest.raises(ValueError, match="no files for 'val'"):
        csv.path_of(Split.VAL)


def test_auto_batch_size() -> None:
    auto = DataConfig().to_spec()
    assert (auto.training_batch_size, auto.planning_batch_size(16)) == (2048, 8192)
    given = DataConfig(global_batch_size=100).to_spec()
    assert (given.training_batch_size, given.planning_batch_size(16)) == (100, 100)


def test_unknown_names_are_suggested() -> None:
    found = findings(name="syntetic", out_of_range="clamp")
    assert found["name"] == (
        "name: 'syntetic' is not a data reader; did you mean 'synthetic'? Choices: criteo, csv, parquet, synthetic"
    )
    assert "did you mean 'clamp_zero'" in found["out_of_range"]


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("global_batch_size", 0, "0 is below the limit 1"),
        ("global_batch_size", "big", "'big' is neither 'auto' nor a whole number"),
        ("limit_samples", 0, "0 is below the limit 1"),
        ("num_samples", 0, "0 is below the limit 1"),
        ("val_samples", -1, "-1 is below the limit 0; write 0 to 2^48"),
        ("num_workers", -1, "-1 is below the limit 0; write 0 to 64"),
        ("num_dense", -1, "-1 is below the limit 0; write 0 to 100000"),
        ("zipf_exponent", -0.5, "-0.5 is below the limit 0; write 0 to 20"),
        ("zipf_exponent", float("nan"), "nan is not a finite number"),
    ],
)
def test_limits(key: str, value: Any, text: str) -> None:
    assert text in findings(**{key: value})[key]


def test_keys_that_would_be_ignored_are_findings(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("y,a\n1,2\n")
    found = findings(path=str(path), shuffle=True, encoding="hash", label="y")
    assert set(found) == {"path", "shuffle", "encoding", "label"}
    assert "has no effect on data=synthetic" in found["path"]
    found = findings(name="criteo", path=str(path), label="y", num_dense=3)
    assert "its columns are fixed by the format" in found["label"]
    assert "has no effect on data=criteo" in found["num_dense"]
    columns: dict[str, Any] = {"name": "csv", "path": str(path), "label": "y", "categorical": ["a"]}
    assert "with encoding 'vocabulary'" in findings(**columns, hash_buckets=10)["hash_buckets"]
    assert "data.shuffle=false" in findings(**columns, shuffle=False, shuffle_window=10)["shuffle_window"]
    assert findings(**columns, encoding="hash", hash_buckets=10, shuffle_window=10) == {}


def test_paths(tmp_path: Path) -> None:
    assert "is not set, and data=criteo reads files" in findings(name="criteo")["path"]
    empty = tmp_path / "empty.tsv"
    empty.touch()
    (tmp_path / "folder").mkdir()
    found = findings(name="criteo", path=str(tmp_path / "no.tsv"), val_path=str(empty))
    assert "no.tsv' does not exist" in found["path"]
    assert "empty.tsv' is empty (0 bytes)" in found["val_path"]
    found = findings(name="parquet", path=str(tmp_path / "folder"), label="y", categorical=["a"])
    assert "holds no file with a name that ends in .parquet" in found["path"]
    assert "no file matches" in findings(name="criteo", path=str(tmp_path / "day_*"))["path"]


def test_columns(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("y,a,w\n1,x,1\n")
    found = findings(name="csv", path=str(path))
    assert "write data.label=COLUMN" in found["label"]
    assert "names no column" in found["categorical"]
    found = findings(name="csv", path=str(path), label="y", dense=["y"], categorical=["a", "a"], list_weights=["w"])
    assert found["dense"] == "dense: 'y' is already used by data.label; name a column once"
    assert "'a' is already used by data.categorical" in found["categorical"]
    assert "has 1 entries for 0 entries of data.lists" in found["list_weights"]
    assert "hexadecimal" in findings(name="criteo", path=str(path), encoding="identity")["encoding"]


def test_lists_of_the_model_must_fit_the_data() -> None:
    def check(config: DataConfig, rows: Any, pooling: Any = None) -> list[str]:
        return [str(finding) for finding in config.check_features(rows, pooling)]

    assert check(DataConfig(), [10, 20], [1.0, 2.0]) == []
    assert check(DataConfig(), [10, 0]) == ["model.num_embeddings[1]: 0 is below the limit 1"]
    assert check(DataConfig(), [10, 20], [1.0])[0].startswith("model.pooling_factors: has 1 entries for 2 of")
    assert check(DataConfig(), None, [0.0]) == ["model.pooling_factors[0]: 0.0 is outside (0, 1000000]"]
    assert check(DataConfig(), []) == [
        "model.num_embeddings: is an empty list; give one entry per feature, or null",
    ]
    assert "has 2 entries for 26 sparse features" in check(DataConfig(name="criteo"), [10, 20])[0]
    assert check(DataConfig(name="criteo"), [1] * 26)[0] == "model.num_embeddings[0]: 1 is below the limit 2"


def test_rare_ids_and_bags_need_what_they_are_made_of(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("y,a,l\n1,2,3\n")
    common: dict[str, Any] = {"name": "csv", "path": str(path), "label": "y", "categorical": ["a"]}
    assert findings(**common, min_count=3, multi_hot="fixed") == {}
    assert findings(**common, min_count=3, encoding="hash")["min_count"] == (
        "min_count: has no effect with encoding 'hash': it has no row for rare ids; "
        "remove it or write data.encoding=vocabulary"
    )
    assert "min_count" in findings(name="criteo", path=str(path), min_count=3)
    assert "write data.multi_hot=none" in findings(**common, lists=["l"], multi_hot="fixed")["multi_hot"]
    assert "did you mean 'fixed'" in findings(**common, multi_hot="fixd")["multi_hot"]
    assert set(findings(min_count=2, multi_hot="fixed")) == {"min_count", "multi_hot"}
    config = DataConfig(**common, multi_hot="fixed")
    assert [finding.key for finding in config.check_features(None, None)] == ["data.multi_hot"]
    assert [finding.key for finding in config.check_features(None, [1.5])] == ["model.pooling_factors[0]"]
    assert config.check_features(None, [3.0]) == []
