from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from neo.data.hashing import combine, hash_integers, hash_texts, mix
from neo.data.multi_hot import FixedBags
from neo.errors import ConfigError


def test_the_rule_is_the_documented_one() -> None:
    bags = FixedBags("C7", first=2, stop=50, num_embeddings=50, pooling_factor=4)
    rows = np.array([2, 17, 49, 0, 17])
    found = bags.of(rows).reshape(5, 4)
    name = int(hash_texts(pa.array(["C7"]))[0])
    for row, bag in zip(rows.tolist(), found.tolist(), strict=True):
        assert bag[0] == row
        for position in (1, 2, 3):
            key = combine(20_450, name, position)
            drawn = int(mix(hash_integers(np.array([row])) ^ key)[0])
            assert bag[position] == 2 + drawn % 48
    assert found[1].tolist() == found[4].tolist()


def test_bags_do_not_change_from_version_to_version() -> None:
    bags = FixedBags("C1", first=0, stop=1000, num_embeddings=1001, pooling_factor=3)
    assert bags.of(np.array([0, 1, 1000])).tolist() == [0, 650, 911, 1, 899, 328, 1000, 279, 802]


def test_draws_are_even_and_differ_by_feature() -> None:
    first, second = (
        FixedBags(name, first=1, stop=101, num_embeddings=10_000, pooling_factor=11)
        .of(np.arange(10_000))
        .reshape(-1, 11)
        for name in ("a", "b")
    )
    drawn = np.bincount(first[:, 1:].reshape(-1), minlength=101)
    assert drawn[0] == 0
    assert abs(drawn[1:] - 1000).max() < 5 * np.sqrt(1000)  # five deviations of a fair draw
    assert (first[:, 1:] == second[:, 1:]).mean() < 0.02


def test_an_id_outside_its_table_is_alone_in_its_bag() -> None:
    bags = FixedBags("a", first=0, stop=9, num_embeddings=10, pooling_factor=3)
    assert bags.of(np.array([-1, 10, 9])).tolist()[:6] == [-1, -1, -1, 10, 10, 10]
    assert set(bags.of(np.array([9])).tolist()) <= set(range(10))


def test_a_vocabulary_without_ids() -> None:
    bags = FixedBags("a", first=2, stop=2, num_embeddings=2, pooling_factor=5)
    assert set(bags.of(np.array([0, 1])).tolist()) <= {0, 1}


@pytest.mark.parametrize("encoding", ["identity", "hash", "vocabulary"])
def test_batches_hold_bags_of_the_given_sizes(encoding: str, learn: Any, load: Any, write_parquet: Any) -> None:
    ids = [number % 30 if number % 7 else None for number in range(500)]
    path = write_parquet({"y": [0] * 500, "a": ids, "b": list(range(500))})
    config = {"name": "parquet", "path": str(path), "label": "y", "categorical": ["a", "b"], "encoding": encoding}
    spec, schema = learn(**config, multi_hot="fixed", pooling_factors=[3.0, 1.0])
    plain_spec, plain_schema = learn(**config)
    assert [feature.pooling_factor for feature in schema.features] == [3.0, 1.0]
    assert schema.fingerprint != plain_schema.fingerprint
    spec, schema = learn(**config, multi_hot="fixed", pooling_factors=[3.0, 1.0])
    whole = load(spec, schema, size=100)
    single = load(plain_spec, plain_schema, size=100)
    halves = [load(spec, schema, size=100, rank=rank, world_size=2) for rank in range(2)]
    for index, (batch, one) in enumerate(zip(whole, single, strict=True)):
        assert batch.sparse.lengths.tolist() == [3] * 100 + [1] * 100
        bags = batch.sparse.values[:300].reshape(100, 3)
        assert bags[:, 0].tolist() == one.sparse.values[:100].tolist()
        assert batch.sparse.values[300:].tolist() == one.sparse.values[100:].tolist()
        assert int(batch.sparse.values[:300].max()) < schema.features[0].num_embeddings
        parts = [half[index].sparse.values[:150].reshape(50, 3) for half in halves]
        assert torch.equal(torch.cat(parts), bags)


def test_sizes_must_be_given_and_whole(learn: Any, write_parquet: Any) -> None:
    path = write_parquet({"y": [0], "a": [1]})
    config = {"name": "parquet", "path": str(path), "label": "y", "categorical": ["a"], "multi_hot": "fixed"}
    with pytest.raises(ConfigError, match=r"data.multi_hot: 'fixed' makes as many ids .* which is not set; write"):
        learn(**config)
    with pytest.raises(ConfigError, match=r"model.pooling_factors\[0\]: 2.5 is not a whole number from 1"):
        learn(**config, pooling_factors=[2.5])
