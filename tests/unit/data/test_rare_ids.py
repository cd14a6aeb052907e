"""``data.min_count``: ids seen too rarely share the row of unseen ids, and the count is part of the fingerprint."""

from typing import Any

import pyarrow as pa
import pytest

from neo.data.encode import UNSEEN_ROW
from neo.data.plain import MISSING_ROW

TEXTS = [None, "rare", "twice", "often", "twice", "often", "often", None, None, None]


@pytest.mark.parametrize("stored", ["text", "dictionary", "whole", "fraction"])
@pytest.mark.parametrize("row_group_size", [3, 1000])
def test_ids_below_the_count_share_a_row(
    stored: str, row_group_size: int, learn: Any, load: Any, write_parquet: Any
) -> None:
    column: Any = pa.array(TEXTS)
    if stored in ("whole", "fraction"):
        numbers = {"rare": 11, "twice": 5, "often": 700_000}
        kind = pa.int64() if stored == "whole" else pa.float64()
        column = pa.array([None if text is None else numbers[text] for text in TEXTS], kind)
    if stored == "dictionary":
        column = column.dictionary_encode()
    path = write_parquet({"y": [0] * 10, "a": column}, row_group_size=row_group_size)
    common = {"name": "parquet", "path": str(path), "label": "y", "categorical": ["a"], "shuffle": False}
    sizes, fingerprints = [], set()
    for least in (1, 2, 3, 4):
        spec, schema = learn(**common, min_count=least)
        sizes.append(schema.features[0].num_embeddings)
        fingerprints.add(schema.fingerprint)
        (batch,) = load(spec, schema)
        rows = dict(zip(TEXTS, batch.sparse.values.tolist(), strict=True))
        seen = {None: 0, "rare": 1, "twice": 2, "often": 3}
        assert rows[None] == MISSING_ROW
        for text, count in seen.items():
            if text is not None:
                assert (rows[text] == UNSEEN_ROW) == (count < least), (text, least)
    assert sizes == [5, 4, 3, 2]
    assert len(fingerprints) == 4


def test_many_ids_are_counted_over_merges(learn: Any, write_parquet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neo.data.statistics._FEWEST_PENDING", 50)
    ids = [number % 300 for number in range(1000)]  # 0 to 99 four times, the others three times
    path = write_parquet({"y": [0] * 1000, "a": ids}, row_group_size=70)
    _, schema = learn(name="parquet", path=str(path), label="y", categorical=["a"], min_count=4)
    assert sorted(schema.known_ids(schema.sparse[0]).to_pylist()) == list(range(100))
