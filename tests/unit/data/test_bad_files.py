"""R18 (data side), R22 and R23: bad data is named with file, place, column and value; never a library's traceback."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neo.data.vocabulary import load_schema
from neo.errors import DataError

CSV: dict[str, Any] = {"name": "csv", "label": "y", "dense": ["d"], "categorical": ["a"], "shuffle": False}
PARQUET: dict[str, Any] = {**CSV, "name": "parquet"}


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
    assert message(error) == f"'{path}', line 701: column 'I4': '12x' is not a number"
    path = write_text("y,d,a\n1,2,x\n\n0,many,x\n")
    with pytest.raises(DataError) as error:
        learn(path=str(path), **CSV)
    assert message(error) == f"'{path}', line 4: column 'd': 'many' is not a number"
    path = write_text("y,d,a\n1,2,x\n0,inf,x\n")
    with pytest.raises(DataError) as error:
        learn(path=str(path), **CSV)
    assert message(error) == f"'{path}', line 3: column 'd': inf is not finite"
    spec, schema = learn(path=str(path), **CSV, dense_transform="none")
    with pytest.raises(DataError, match="line 3: column 'd': inf is not finite"):
        load(spec, schema)


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
    with pytest.raises(DataError) as error:
        learn(path=str(path), **{**CSV, "dense": ["ages"]})
    expected = f"'{path}', line 1: there is no column 'ages'; did you mean 'age'? Choices: a, age, y"
    assert message(error) == expected
    parquet = write_parquet({"y": [1], "age": [1], "a": [1]})
    with pytest.raises(DataError) as error:
        learn(path=str(parquet), **{**PARQUET, "dense": ["ages"]})
    assert message(error) == f"'{parquet}': there is no column 'ages'; did you mean 'age'? Choices: a, age, y"
    twice = write_text("y,d,a,d\n1,2,x,3\n")
    with pytest.raises(DataError, match="line 1: there are 2 columns 'd'; rename one"):
        learn(path=str(twice), **CSV)


def test_r22_empty_file(learn: Any, write_text: Any, write_parquet: Any) -> None:
    path = write_text("y,d,a\n")
    with pytest.raises(DataError) as error:
        learn(path=str(path), **CSV)
    assert message(error) == f"'{path}' is empty: it holds no samples; remove it"
    parquet = write_parquet({"y": pa.array([], pa.int8()), "d": pa.array([], pa.int8()), "a": pa.array([], pa.int8())})
    with pytest.raises(DataError) as error:
        learn(path=str(parquet), **PARQUET)
    assert message(error) == f"'{parquet}' is empty: it holds no samples; remove it"


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
        with pytest.raises(DataError) as error:
            learn(path=str(path), **{**PARQUET, **config})
        return message(error).removeprefix(f"'{path}': ")

    assert refused({"d": ["1", "2"]}) == "column 'd' has the type string, which is no number"
    assert refused({"a": [[1], [2]]}) == "column 'a' has the type list<element: int64>; name it in data.lists instead"
    assert "data.lists names list columns" in refused({}, categorical=[], lists=["a"])
    text = refused({"a": pa.array([1, 2], pa.timestamp("s"))})
    assert text.endswith("ids must be whole numbers or text")
    text = refused({"w": [1, 2], "l": [[1], [2]]}, lists=["l"], list_weights=["w"])
    assert text == "column 'w' has the type int64; weights are lists of numbers"


def test_r22_ids_of_another_kind_than_in_training(learn: Any, load: Any, write_parquet: Any) -> None:
    train = write_parquet({"y": [0, 1], "a": [1, 2]}, name="train.parquet")
    val = write_parquet({"y": [0, 1], "a": ["1", "2"]}, name="val.parquet")
    config = {"name": "parquet", "path": str(train), "val_path": str(val), "label": "y", "categorical": ["a"]}
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
    with pytest.raises(DataError, match="there is no column 'a'"):
        learn(**{**config, "val_path": str(bare)})


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


@pytest.mark.parametrize(("label", "shown"), [("2", "2.0"), ("-0.5", "-0.5"), ("nan", "nan"), ("", "nan")])
def test_r23_labels(label: str, shown: str, learn: Any, load: Any, write_text: Any) -> None:
    path = write_text("y,a\n" + "1,x\n" * 24 + f"{label},x\n" + "0,x\n" * 10)
    spec, schema = learn(name="csv", path=str(path), label="y", categorical=["a"], shuffle=False)
    with pytest.raises(DataError) as error:
        load(spec, schema, size=10, rank=0, world_size=2)
    assert message(error) == f"batch 2: label {shown} of sample 4 is outside [0, 1] ('{path}', line 26)"
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
