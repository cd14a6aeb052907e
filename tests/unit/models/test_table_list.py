from pathlib import Path

import pytest

from neo.errors import DataError
from neo.models.table_list import listed_tables, tables_from_csv
from neo.tables.spec import Pooling, TableSpec, WeightsDtype


def write(folder: Path, text: str) -> Path:
    path = folder / "tables.csv"
    path.write_text(text)
    return path


def test_the_four_columns_are_enough(tmp_path: Path) -> None:
    path = write(tmp_path, "name,rows,dim,pooling\na,5000000000,64,1.5\n\nb,10,4,60\n")
    assert tables_from_csv(path) == (
        TableSpec("a", 5_000_000_000, 64, ("a",), Pooling.SUM, False, 1.5),
        TableSpec("b", 10, 4, ("b",), Pooling.SUM, False, 60.0),
    )


def test_optional_columns(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "name,rows,dim,pooling,weights_dtype,optimizer,skew,weighted,features\n"
        "a,10,4,1,fp16,adam,1.05,true,2\n"
        "b,10,4,1,,,,,x;y\n",
    )
    first, second = listed_tables(path)
    assert (first.weights_dtype, first.optimizer, first.skew) == (WeightsDtype.FP16, "adam", 1.05)
    assert (first.table.weighted, first.table.feature_names) == (True, ("a_0", "a_1"))
    assert (second.weights_dtype, second.optimizer, second.skew) == (None, None, None)
    assert (second.table.weighted, second.table.feature_names) == (False, ("x", "y"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty; its first line must be name,rows,dim,pooling"),
        ("name,rows,dim,pooling\n", "the file lists no table below its header"),
        ("name,rows,dim\na,1,1\n", "line 1: missing column pooling; it has name, rows, dim"),
        ("name,rows,dim,pooling,skwe\n", "line 1: 'skwe' is not a column of a table list; did you mean 'skew'?"),
        ("name,rows,dim,pooling,dim\n", "line 1: column 'dim' is there twice"),
        ("name,rows,dim,pooling\na,1,1\n", "line 2: 3 values for 4 columns (name, rows, dim, pooling)"),
        ("name,rows,dim,pooling\na,1,1,1\nb,x,1,1\n", "line 3, column rows: 'x' is not a whole number of at least 1"),
        ("name,rows,dim,pooling\na,1,0,1\n", "line 2, column dim: '0' is not a whole number of at least 1"),
        ("name,rows,dim,pooling\na,1,1,nan\n", "line 2, column pooling: 'nan' is not a number above 0"),
        ("name,rows,dim,pooling\n,1,1,1\n", "line 2, column name: '' is not a name"),
        ("name,rows,dim,pooling\na,1,1,1\na,2,1,1\n", "line 3, column name: 'a' is already the table of line 2"),
        ("name,rows,dim,pooling,weights_dtype\na,1,1,1,int4\n", "line 2, column weights_dtype: 'int4' is not fp32 or"),
        ("name,rows,dim,pooling,optimizer\na,1,1,1,adagard\n", "line 2, column optimizer: 'adagard' is not adagrad or"),
        ("name,rows,dim,pooling,skew\na,1,1,1,-1\n", "line 2, column skew: '-1' is not a number of at least 0"),
        ("name,rows,dim,pooling,weighted\na,1,1,1,maybe\n", "line 2, column weighted: 'maybe' is not true or false"),
        ("name,rows,dim,pooling,features\na,1,1,1,0\n", "line 2, column features: '0' is not at least 1 feature"),
        ("name,rows,dim,pooling,features\na,1,1,1,x;x\n", "line 2, column features: 'x;x' is not distinct names"),
    ],
)
def test_bad_files_name_line_column_and_value(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(DataError) as error:
        tables_from_csv(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.csv: cannot read the table list"):
        tables_from_csv(tmp_path / "none.csv")
