from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from neo.data.hashing import Hashes
from neo.data.plain import PlainColumn, TextRows, is_plain_id, is_plain_number, to_plain


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("start", [0, 1, 9])
def test_keeps_values_and_holes_of_a_part_of_an_array(kind: Any, start: int) -> None:
    given = [None if number % 3 == 0 else number for number in range(40)]
    part = pa.array(given, kind).slice(start, 20)
    plain = to_plain(part)
    assert plain.arrow().equals(part)
    assert plain.take(np.array([5, 0, 5])).arrow().equals(part.take(pa.array([5, 0, 5])))
    assert plain.slice(3, 7).arrow().equals(part.slice(3, 4))
    assert to_plain(pa.array([1, 2, 3], kind)).missing is None


def test_parts_of_different_width_are_joined() -> None:
    small, large = to_plain(pa.array([1, None], pa.int8())), to_plain(pa.array([2**40], pa.int64()))
    assert small.append([large]).arrow().to_pylist() == [1, None, 2**40]
    assert large.append([small, large]).arrow().to_pylist() == [2**40, 1, None, 2**40]
    assert large.append([large]).missing is None


def test_which_types_are_plain() -> None:
    assert is_plain_id(pa.uint32()) and not is_plain_id(pa.uint64()) and not is_plain_id(pa.float32())
    assert is_plain_number(pa.uint64()) and is_plain_number(pa.float64())
    assert not is_plain_number(pa.float16()) and not is_plain_number(pa.bool_()) and not is_plain_number(pa.string())


def test_each_text_of_a_dictionary_is_looked_up_once() -> None:
    asked: list[int] = []

    def find(hashes: Hashes) -> Any:
        asked.append(hashes.size)
        return (hashes % np.uint64(1000)).astype(np.int64) + 10

    rows = TextRows(find)
    texts = pa.array(["a", "b", None, "a", "c"])
    plain: PlainColumn = rows.of(texts)
    expected = plain.values.tolist()
    assert plain.is_rows and plain.missing is None
    assert expected[0] == expected[3] and expected[2] == 0 and len(set(expected)) == 4
    coded = texts.dictionary_encode()
    asked.clear()
    assert rows.of(coded).values.tolist() == expected
    assert rows.of(coded.slice(1, 3)).values.tolist() == expected[1:4]
    assert asked == [3]
    other = pa.array(["c", "a"]).dictionary_encode()
    assert rows.of(other).values.tolist() == [expected[4], expected[0]]
    assert asked == [3, 2]
    assert rows.of(pa.array([None], pa.string()).dictionary_encode()).values.tolist() == [0]
