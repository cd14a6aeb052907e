import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neo.data.integer_index import IntegerIndex

_INT64 = st.integers(-(2**63), 2**63 - 1)


@settings(deadline=None, max_examples=60)
@given(
    start=st.integers(-(2**63), 2**63 - 2000), known=st.sets(st.integers(0, 1500), min_size=1), asked=st.lists(_INT64)
)
def test_finds_the_known_and_nothing_else(start: int, known: set[int], asked: list[int]) -> None:
    ids = [start + number for number in known]
    index = IntegerIndex.of(pa.array(ids, pa.int64()), first=2, absent=1)
    assert index is not None
    everything = [*asked, *ids, min(ids) - 1 if min(ids) > -(2**63) else 0, max(ids) + 1]
    rows = {number: 2 + place for place, number in enumerate(ids)}
    found = index.find(np.array(everything, dtype=np.int64))
    assert found.tolist() == [rows.get(number, 1) for number in everything]


@pytest.mark.parametrize(
    "ids", [pa.array([], pa.int64()), pa.array(["1"]), pa.array([0, 2**40]), pa.array([-(2**63), 2**63 - 1])]
)
def test_no_index_where_an_array_would_be_mostly_empty(ids: pa.Array) -> None:
    assert IntegerIndex.of(ids, first=2, absent=1) is None


def test_the_ids_of_a_column_of_flags() -> None:
    index = IntegerIndex.of(pa.array([True, False]), first=2, absent=1)
    assert index is not None
    assert index.find(np.array([0, 1, 2])).tolist() == [3, 2, 1]
