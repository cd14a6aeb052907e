"""R18 (data side), R22 and R23: bad data is named with file, place, column and value; never a library's traceback."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neo.data.spec import READERS, DataConfig, Split
from neo.data.vocabulary import load_schema
from neo.errors import ConfigError, DataError

CSV: dict[str, Any] = {"name": "csv", "label": "y", "dense": ["d"], "categorical": ["a"], "shuffle": False}
EMPTY = {"y": pa.array([], pa.null()), "d": pa.array([], pa.null()), "a": pa.array([], pa.int8())}
PARQUET: dict[str, Any] = {**CSV, "name": "parquet"}


MISSING = "an empty cell or null is a missing value"
BEYOND = "is beyond 3.4e38, the limit of float32; scale the column, or use data.dense_transform=log1p"


def message(error: pytest.ExceptionInfo[DataError]) -> str:
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__ or error.value.__context__ is None
    return str(error.value)


def criteo_line(**changed: str) -> str:
    fields = ["1", *["5"] * 13, *["05db9164"] * 26]
    for position, value in changed.items():
        fields[int(position.removeprefix("f"))] = value
    return "\t".join(fields) + "\n"


def test_r22_truncated_row_of_criteo(learn: Any, load: Any, write_text: Any) -> None:
    path = write_text(criteo_line() * 700 + "0\t1\t2\n" + criteo_line() * 5, name="day.tsv")
    spec, schema = learn(name="criteo", path=str(path))
    for rank in (0, 1):
        with pytest.raises(DataError) as error:
            load(spec, schema, rank=rank, world_size=2)
        assert message(error) == f"'{path}', line 701: 3 fields for 40 columns; the last field, column 3, is '2'"


def test_r22_value_that_is_no_number(learn: Any, load: Any, write_text: Any) -> None:
    path = write_text(criteo_line() * 700 + criteo_line(f4="12x") + criteo_line() * 99, name="day.tsv")
    spec, schema = learn(name="criteo", path=str(path))
    with pytest.raises(DataError) as error:
        load(spec, schema)
    assert message(error) == f"'{path}', line 701: column 'I4': '12x' is not a whole number"
    path = write_text("y,d,a\n1,2,x\n\n0,many,x\n")
    with pytest.raises(DataError) as error:
        learn(path=str(path), **CSV)
    assert message(error) == f"'{path}', line 4: column 'd': 'many' is not a number"
    path = write_text("y,d,a\n1,2,x\n0,inf,x\n")
    with pytest.raises(DataError) as error:
        learn(path=str(path), **CSV)
    assert message(error) == f"'{path}', line 3: column 'd': inf is not finite; {MISSING}"
    spec, schema = learn(path=str(path), **CSV, dense_transform="none")
    with pytest.raises(DataError, match="line 3: column 'd': inf is not finite"):
        load(spec, schema)


@pytest.mark.parametrize("transform", ["standardize", "none", "log1p"])
@pytest.mark.parametrize("name", ["csv", "parquet"])
def test_r18_nan_in_a_dense_column_is_no_missing_value(
    learn: Any, load: Any, write_text: Any, tmp_path: Path, name: str, transform: str
) -> None:
    """The null before it is one, and an empty cell or null stays the 0 of the transformed column."""
    if name == "csv":
        path, where = write_text("y,d,a\n1,2,x\n0,,x\n0,nan,x\n"), "line 4"
    else:
        path, where = tmp_path / "day.parquet", "row group 0, row 2"
        dense = pa.array([2.0, None, float("nan")], from_pandas=False)
        pq.write_table(pa.table({"y": [1, 0, 0], "d": dense, "a": ["x"] * 3}), path)
    asked = {**CSV, "name": name, "path": str(path), "dense_transform": transform}
    with pytest.raises(DataError) as error:
        load(*learn(**asked))
    assert message(error) == f"'{path}', {where}: column 'd': nan is not finite; {MISSING}"
    asked["limit_samples"] = 2
    assert load(*learn(**asked), limit=2)[0].dense[1].item() == 0.0


@pytest.mark.parametrize("value", ["1e300", "-3.5e38"])
@pytest.mark.parametrize("transform", ["standardize", "none"])
def test_r18_a_value_beyond_float32_is_named(
    learn: Any, load: Any, write_text: Any, transform: str, value: str
) -> None:
    path = write_text(f"y,d,a\n1,,x\n0,{value},x\n")
    asked = {**CSV, "path": str(path), "dense_transform": transform}
    with pytest.raises(DataError) as error:
        load(*learn(**asked))
    assert message(error) == f"'{path}', line 3: column 'd': {float(value)} {BEYOND}"
    held = load(*learn(**asked | {"dense_transform": "log1p"}))[0].dense[1].item()
    assert held == pytest.approx(690.8 if value == "1e300" else 0.0, abs=0.1)


@pytest.mark.parametrize(
    ("weight", "problem"),
    [
        ("nan", f"nan is not finite; {MISSING}"),
        ("inf", f"inf is not finite; {MISSING}"),
        ("1e39", "1e+39 is beyond 3.4e38, the limit of float32; scale the weights"),
    ],
)
def test_r18_a_weight_that_is_not_finite_is_named(
    learn: Any, load: Any, write_text: Any, weight: str, problem: str
) -> None:
    path = write_text(f"y,tags,w\n1,a|b,1|\n0,a|b,2|{weight}\n")
    lists = {"lists": ["tags"], "list_weights": ["w"], "categorical": [], "dense": []}
    with pytest.raises(DataError) as error:
        load(*learn(**{**CSV, **lists, "path": str(path)}))
    assert message(error) == f"'{path}', line 3: column 'w': {problem}"


def test_r22_value_that_is_no_whole_number(learn: Any, write_text: Any, write_parquet: Any) -> None:
    path = write_text("y,d,a\n1,2,7\n0,3,7.5\n")
    with pytest.raises(DataError) as error:
        learn(path=str(path), encoding="identity", **CSV)
    assert message(error) == f"'{path}', line 3: column 'a': '7.5' is not a whole number"
    path = write_parquet({"y": [0] * 30, "d": [1.0] * 30, "a": [1.0] * 25 + [0.5] * 5}, row_group_size=10)
    with pytest.raises(DataError) as error:
        learn(path=str(path), **PARQUET)
    assert message(error) == f"'{path}', row group 2, row 5: column 'a': 0.5 is not a whole number"


def test_r22_missing_column(learn: Any, write_text: Any, write_parquet: Any) -> None:
    path = write_text("y,age,a\n1,2,x\n")
    parquet = write_parquet({"y": [1], "age": [1], "a": [1]})
    for config in ({**CSV, "path": str(path)}, {**PARQUET, "path": str(parquet)}):
        given = DataConfig(**{**config, "dense": ["ages"]})
        expected = f"there is no column 'ages' in '{given.path}'; did you mean 'age'? Choices: a, age, y"
        assert [str(finding) for finding in given.validate()] == [f"dense: {expected}"]
        with pytest.raises(ConfigError) as error:  # a file that changed since
            READERS.get(given.name)(given.to_spec(), Split.TRAIN)
        assert str(error.value) == f"1 mistake in the configuration:\n  data.dense: {expected}"


def test_r33_every_wrong_column_is_found_at_once(write_parquet: Any, write_text: Any) -> None:
    train = write_parquet({"click": [1], "age": [3], "user": ["u"], "tags": [[1]], "w": [1.0]}, name="train.parquet")
    val = write_parquet({"click": ["1"], "user": ["u"], "tags": [[1]], "w": [1.0]}, name="val.parquet")
    config = DataConfig(
        name="parquet",
        path=str(train),
        val_path=str(val),
        label="click",
        dense=["agee", "age"],
        categorical=["user", "nosuch"],
        lists=["tag"],
        list_weights=["w"],
    )
    choices = "Choices: age, click, tags, user, w"
    assert [str(finding) for finding in config.validate()] == [
        f"dense: there is no column 'agee' in '{train}'; did you mean 'age'? {choices}",
        f"categorical: there is no column 'nosuch' in '{train}'; {choices}",
        f"lists: there is no column 'tag' in '{train}'; did you mean 'tags'? {choices}",
        f"list_weights: column 'w' in '{train}' has the type double; weights are lists of numbers",
        f"dense: there is no column 'age' in '{val}'; did you mean 'tags'? Choices: click, tags, user, w",
        f"label: column 'click' in '{val}' has the type string, which is no number",
    ]
    config = DataConfig(
        name="csv", path=str(write_text("y,d,a,d\n1,2,x,3\n")), label="l", dense=["d"], categorical=["b"]
    )
    assert [str(finding) for finding in config.validate()] == [
        f"label: there is no column 'l' in '{config.path}'; Choices: a, d, d, y",
        f"categorical: there is no column 'b' in '{config.path}'; Choices: a, d, d, y",
        f"dense: there are 2 columns 'd' in '{config.path}'; rename one",
    ]


@pytest.mark.parametrize(("separator", "shown"), [(";", "';'"), ("\t", "tabs")])
def test_a_csv_file_with_another_separator(separator: str, shown: str, write_text: Any) -> None:
    train = write_text("y,d,a\n1,2,x\n", name="train.csv")
    val = write_text(f"y{separator}d{separator}a\n1{separator}2{separator}x\n", name="val.csv")
    [finding] = DataConfig(path=str(train), val_path=str(val), **CSV).validate()
    assert str(finding) == (
        f"val_path: '{val}', line 1: the only column is 'y{separator}d{separator}a', which looks separated by {shown}; "
        "neo reads commas: write the file with them"
    )


def test_what_is_no_text_at_all_is_left_to_the_reader(learn: Any, write_text: Any) -> None:
    path = write_text("y" * 200_000)
    with pytest.raises(DataError) as error:
        learn(path=str(path), **CSV)
    assert message(error).startswith(f"'{path}', line 1: is no header of a CSV file: field larger than")
    path = write_text("not Parquet", name="x.parquet")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        learn(path=str(path), **PARQUET)


def test_r22_criteo_is_checked_value_by_value(learn: Any, load: Any, write_text: Any) -> None:
    def refused(encoding: str, **changed: str) -> str:
        path = write_text(criteo_line() * 700 + criteo_line(**changed) + criteo_line() * 9, name="day.tsv")
        with pytest.raises(DataError) as error:
            load(*learn(name="criteo", path=str(path), encoding=encoding))
        return message(error).removeprefix(f"'{path}', line 701: column ")

    for encoding in ("hash", "vocabulary"):
        for value in ("zzzz", '"ab', "123456789", "0x12", " ", "\u00e9a"):
            expected = f"'C3': '{value}' is not a hexadecimal id of at most 8 digits"
            assert refused(encoding, f16=value) == expected
        for value in ("1.5", "0x1F", "1e3", "nan"):
            assert refused(encoding, f1=value) == f"'I1': '{value}' is not a whole number"
    assert refused("hash", f2="99999999999999999999").startswith("'I2': '99999999999999999999' is not between -2^63")


@pytest.mark.parametrize("encoding", ["hash", "vocabulary"])
def test_case_of_a_hexadecimal_id_does_not_matter(encoding: str, learn: Any, load: Any, write_text: Any) -> None:
    lines = [criteo_line(f14="05DB916E", f15=""), criteo_line(f14="05db916e", f15=""), criteo_line(f14="", f15="aB")]
    spec, schema = learn(
        name="criteo", path=str(write_text("".join(lines), "day.tsv")), encoding=encoding, shuffle=False
    )
    ids = load(spec, schema)[0].sparse.values.tolist()
    assert ids[0] == ids[1] > ids[2] == 0
    assert ids[3] == ids[4] == 0 < ids[5]


def test_r22_empty_file(learn: Any, write_text: Any, write_parquet: Any) -> None:
    path = write_text("y,d,a\n")
    with pytest.raises(DataError) as error:
        learn(path=str(path), **CSV)
    assert message(error) == f"'{path}' is empty: it holds no samples; remove it"
    parquet = write_parquet(EMPTY)
    with pytest.raises(DataError) as error:
        learn(path=str(parquet), **PARQUET)
    assert message(error) == f"'{parquet}' is empty: it holds no samples; remove it"


def test_empty_files_beside_others_are_left_out(learn: Any, load: Any, write_text: Any, write_parquet: Any) -> None:
    write_parquet(EMPTY, name="p/0.parquet")
    write_parquet({"y": [0, 1], "d": [1, 2], "a": ["u", "v"]}, name="p/1.parquet")
    path = write_parquet(EMPTY, name="p/2.parquet")
    spec, schema = learn(path=str(path.parent), **PARQUET)
    assert load(spec, schema)[0].labels.tolist() == [0, 1]
    (path.parent / "1.parquet").unlink()
    with pytest.raises(DataError) as error:
        learn(path=str(path.parent), **PARQUET)
    assert message(error) == f"all 2 files in '{path.parent}' are empty: they hold no samples"
    for name, text in (("c/0.csv", "y,d,a\n"), ("c/1.csv", ""), ("c/2.csv", "y,d,a\n0,1,u\n1,2,v\n")):
        path = write_text(text, name=name)
    spec, schema = learn(path=str(path.parent / "*.csv"), **CSV)
    assert load(spec, schema)[0].labels.tolist() == [0, 1]
    path.write_text("y,d,a\n")
    with pytest.raises(DataError) as error:
        learn(path=str(path.parent), **CSV)
    assert message(error) == f"all 2 files in '{path.parent}' are empty: they hold no samples"


def test_r22_broken_files(learn: Any, load: Any, write_parquet: Any, write_text: Any) -> None:
    path = write_parquet({"y": [0, 1], "d": [1, 2], "a": [1, 2]})
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError) as error:
        learn(path=str(path), **PARQUET)
    assert message(error).startswith(f"'{path}' cannot be read as Parquet: ")
    path.write_bytes(content)
    spec, schema = learn(path=str(path), **PARQUET)
    broken = bytearray(content)
    broken[4:40] = bytes(36)
    path.write_bytes(bytes(broken))
    with pytest.raises(DataError) as error:
        load(spec, schema)
    assert message(error).startswith(f"'{path}', row group 0")
    cut = write_text("x", name="day.gz")
    cut.write_bytes(bytes.fromhex("1f8b0800000000000003") + b"\x00" * 5)
    spec, schema = learn(name="criteo", path=str(cut))
    with pytest.raises(DataError) as error:
        load(spec, schema)
    assert message(error).startswith(f"'{cut}' cannot be read: ")


def test_r22_wrong_type(learn: Any, load: Any, write_parquet: Any) -> None:
    good: dict[str, Any] = {"y": [0, 1], "d": [1, 2], "a": [1, 2]}

    def refused(columns: dict[str, Any], **config: Any) -> str:
        path = write_parquet({**good, **columns})
        given = DataConfig(path=str(path), **{**PARQUET, **config})
        [finding] = given.validate()
        with pytest.raises(ConfigError, match=re.escape(f"data.{finding}")):  # a file that changed since
            READERS.get(given.name)(given.to_spec(), Split.TRAIN)
        return str(finding).replace(f" in '{path}'", "")

    assert refused({"d": ["1", "2"]}) == "dense: column 'd' has the type string, which is no number"
    text = refused({"d": pa.array([1, 2], pa.timestamp("s"))})
    assert text.startswith("dense: column 'd' has the type timestamp[") and text.endswith("], which is no number")
    text = "categorical: column 'a' has the type list<element: int64>; name it in data.lists instead"
    assert refused({"a": [[1], [2]]}) == text
    assert "data.lists names list columns" in refused({}, categorical=[], lists=["a"])
    text = refused({"a": pa.array([1, 2], pa.timestamp("s"))})
    assert text.endswith("ids must be whole numbers or text")
    text = refused({"w": [1, 2], "l": [[1], [2]]}, lists=["l"], list_weights=["w"])
    assert text == "list_weights: column 'w' has the type int64; weights are lists of numbers"


def test_r22_ids_of_another_kind_than_in_training(learn: Any, load: Any, write_parquet: Any) -> None:
    train = write_parquet({"y": [0, 1], "a": [1, 2]}, name="train.parquet")
    val = write_parquet({"y": [0, 1], "a": ["1", "2"]}, name="val.parquet")
    config: dict[str, Any] = {
        "name": "parquet",
        "path": str(train),
        "val_path": str(val),
        "label": "y",
        "categorical": ["a"],
    }
    expected = f"'{val}': column 'a' holds text, but whole numbers in the training data"
    with pytest.raises(DataError) as error:
        learn(**config)
    assert message(error) == expected
    good = val.read_bytes()
    val.write_bytes(train.read_bytes())
    spec, schema = learn(**config)
    val.write_bytes(good)
    with pytest.raises(DataError) as error:
        load(spec, schema, split="val")
    assert message(error) == expected
    bare = write_parquet({"y": [0, 1]}, name="bare.parquet")
    [finding] = DataConfig(**{**config, "val_path": str(bare)}).validate()
    assert str(finding) == f"categorical: there is no column 'a' in '{bare}'; Choices: y"


def test_r22_weights_that_do_not_fit(learn: Any, load: Any, write_parquet: Any) -> None:
    path = write_parquet({"y": [0, 1], "l": [[1, 2], [3]], "w": [[0.5, 1.0], [1.0, 2.0]]})
    spec, schema = learn(name="parquet", path=str(path), label="y", lists=["l"], list_weights=["w"], shuffle=False)
    with pytest.raises(DataError) as error:
        load(spec, schema)
    assert message(error) == f"'{path}', row group 0, row 1: column 'w' has 2 weights for 1 ids of column 'l'"


def test_r18_ids_outside_the_table(learn: Any, load: Any, write_parquet: Any, write_text: Any) -> None:
    config = {"label": "y", "categorical": ["a"], "encoding": "identity", "num_embeddings": [10], "shuffle": False}
    for value in (10, -1, 2**31):
        path = write_parquet({"y": [0] * 8, "a": [9, 0, None, 3, value, 5, 6, 7]}, row_group_size=3)
        spec, schema = learn(name="parquet", path=str(path), **config)
        with pytest.raises(DataError) as error:
            load(spec, schema)
        assert message(error) == (
            f"'{path}', row group 1, row 1: column 'a': id {value} is outside its table's rows [0, 9]; "
            "give it more with model.num_embeddings, or write data.out_of_range=clamp_zero"
        )
        csv = write_text(f"y,a\n0,9\n0,\n1,{value}\n")
        spec, schema = learn(name="csv", path=str(csv), **config)
        with pytest.raises(DataError, match=re.escape(f"line 4: column 'a': id {value} is outside")):
            load(spec, schema)


def test_r18_other_policies_leave_the_id_to_the_lookup(learn: Any, load: Any, write_parquet: Any) -> None:
    path = write_parquet({"y": [0] * 5, "a": [9, 10, 11, None, -3]})
    spec, schema = learn(
        name="parquet",
        path=str(path),
        label="y",
        categorical=["a"],
        encoding="identity",
        num_embeddings=[10],
        shuffle=False,
        out_of_range="drop",
    )
    # 10 is the row of a missing id: given as an id, it must count as outside
    assert load(spec, schema)[0].sparse.values.tolist() == [9, -1, 11, 10, -3]


def test_negative_ids_are_no_rows(learn: Any, write_text: Any) -> None:
    path = write_text("y,a\n0,9\n0,\n1,-5\n")
    with pytest.raises(DataError, match="line 4: column 'a': id -5 is negative; with"):
        learn(name="csv", path=str(path), label="y", categorical=["a"], encoding="identity")


def test_ids_that_are_too_large_for_rows(learn: Any, load: Any, write_parquet: Any, write_text: Any) -> None:
    config = {"label": "y", "categorical": ["a"], "encoding": "identity", "shuffle": False}

    def refused(values: Any, **changed: Any) -> str:
        path = write_parquet({"y": [0] * len(values), "a": values}, row_group_size=2)
        with pytest.raises(DataError) as error:
            load(*learn(name="parquet", path=str(path), **{**config, **changed}))
        return message(error).removeprefix(f"'{path}', row group ")

    large = 2**63 + 79
    text = "of column 'a' needs a table of {} rows, and the limit is 281474976710656 (2^48); "
    text += "use data.encoding=vocabulary or hash"
    ids = pa.array([1, 2, None, large], pa.uint64())
    assert refused(ids) == f"1, row 1: id {large} " + text.format(large + 2)
    assert refused([0, 2**48 - 1]) == f"0, row 1: id {2**48 - 1} " + text.format(2**48 + 1)
    assert f"column 'a': id {large} is outside its table's rows [0, 9]" in refused(ids, num_embeddings=[10])
    assert (
        learn(path=str(write_parquet({"y": [0], "a": [2**48 - 2]})), name="parquet", **config)[1]
        .features[0]
        .num_embeddings
        == 2**48
    )
    for encoding in ("hash", "vocabulary"):  # they have no trouble with them
        path = write_parquet({"y": [0] * 4, "a": ids})
        load(*learn(name="parquet", path=str(path), **{**config, "encoding": encoding}))
    assert refused([1.0, 2.0**60]).endswith("is beyond 2^53, where fractions skip whole numbers")
    path = write_text(f"y,a\n0,1\n1,{large}\n")
    with pytest.raises(DataError) as error:
        learn(name="csv", path=str(path), **config)
    expected = f"'{path}', line 3: column 'a': '{large}' is not between -2^63 and 2^63 - 1, the range of whole numbers"
    assert message(error) == expected


@pytest.mark.parametrize(
    ("label", "fault"),
    [
        ("2", "label 2.0 is outside [0, 1]"),
        ("-0.5", "label -0.5 is outside [0, 1]"),
        ("nan", "the label is missing"),
        ("", "the label is missing"),
    ],
)
def test_r23_labels(label: str, fault: str, learn: Any, load: Any, write_text: Any) -> None:
    path = write_text("y,a\n" + "1,x\n" * 24 + f"{label},x\n" + "0,x\n" * 10)
    config = {"name": "csv", "path": str(path), "label": "y", "categorical": ["a"], "shuffle": False}
    with pytest.raises(DataError) as error:
        learn(**config)  # reads the file anyway
    assert message(error) == f"'{path}', line 26: column 'y': {fault}"
    spec, schema = learn(**config, encoding="hash")
    with pytest.raises(DataError) as error:
        load(spec, schema, size=10, rank=0, world_size=2)
    assert message(error) == f"'{path}', line 26: column 'y': {fault} (batch 2, sample 4)"
    load(spec, schema, size=10, rank=1, world_size=2)


def test_a_schema_that_cannot_be_read(learn: Any, tmp_path: Path, write_text: Any) -> None:
    with pytest.raises(DataError, match=r"'.*schema\.json' cannot be read: No such file or directory"):
        load_schema(tmp_path / "nowhere")
    schema = learn(name="csv", path=str(write_text("y,a\n1,x\n")), label="y", categorical=["a"])[1]
    assert load_schema(schema.folder) == schema
    (schema.folder / "vocabulary_0000.arrow").write_text("broken")
    with pytest.raises(DataError, match=r"vocabulary_0000\.arrow' cannot be read as a vocabulary"):
        schema.known_hashes(schema.sparse[0])
    (schema.folder / "schema.json").write_text('{"version": 99}')
    with pytest.raises(DataError, match="has version 99, not 1; start a new run"):
        load_schema(schema.folder)
    (schema.folder / "schema.json").write_text("{")
    with pytest.raises(DataError, match="is not a data schema"):
        load_schema(schema.folder)


def test_row_group_that_is_shorter_than_it_says(
    learn: Any, load: Any, write_parquet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_parquet({"y": [0, 1], "d": [1, 2], "a": [1, 2]})
    spec, schema = learn(path=str(path), **PARQUET)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *given, **named: iter(()))
    with pytest.raises(DataError, match="row group 0: holds 0 rows instead of 2"):
        load(spec, schema)
