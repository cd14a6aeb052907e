import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from neo.data.loader import attainable
from neo.data.spec import DataConfig, Split
from neo.data.synthetic import SyntheticReader, SyntheticRows, _Feature
from neo.errors import ConfigError


def test_default_features(learn: Any) -> None:
    _, schema = learn()
    assert [feature.name for feature in schema.features] == [f"sparse_{i}" for i in range(8)]
    assert {feature.num_embeddings for feature in schema.features} == {1000}
    assert sum(feature.pooling_factor > 1 for feature in schema.features) * 3 >= 8
    assert len(schema.dense_names) == 13


def test_lists_of_the_model_define_the_features(learn: Any) -> None:
    features = learn(num_embeddings=[10, 4_700_000_000])[1].features
    assert [(f.num_embeddings, f.pooling_factor) for f in features] == [(10, 1.0), (4_700_000_000, 1.0)]
    features = learn(pooling_factors=[2.0, 0.5, 1.0])[1].features
    assert [(f.num_embeddings, f.pooling_factor) for f in features] == [(1000, 2.0), (1000, 0.5), (1000, 1.0)]
    with pytest.raises(ConfigError, match="has 1 entries for 2 of"):
        learn(num_embeddings=[10, 20], pooling_factors=[1.0])


def test_statistics(learn: Any, load: Any) -> None:
    spec, schema = learn(num_samples=50_000, pooling_factors=[1.0, 2.0, 3.7, 0.4, 20.0])
    batch = load(spec, schema, size=50_000)[0]
    lengths = batch.sparse.lengths_by_feature.double()
    assert lengths.mean(1).tolist() == pytest.approx([1.0, 2.0, 3.7, 0.4, 20.0], rel=0.02)
    assert lengths.min(1).values.tolist() == [1, 1, 1, 0, 1]
    assert lengths.max(1).values.tolist() == [1, 3, 7, 1, 39]
    assert batch.dense.mean(0).abs().max() < 0.03
    assert batch.dense.std(0).tolist() == pytest.approx([1.0] * 13, abs=0.02)
    assert 0.2 < float(batch.labels.mean()) < 0.4
    assert int(batch.sparse.values.min()) >= 0
    assert int(batch.sparse.values.max()) < 1000


@pytest.mark.parametrize(("exponent", "rows"), [(1.05, 1000), (1.0, 1000), (0.0, 50), (2.0, 1000), (1.05, 1)])
def test_popularity_is_zipf(exponent: float, rows: int) -> None:
    draws = (np.arange(200_000) + 0.5) / 200_000
    ids, _ = _Feature(0, 0, rows, exponent).draw(draws)
    counts = np.sort(np.bincount(ids, minlength=rows))[::-1] / ids.size
    assert counts.size == rows
    edges = np.arange(1, rows + 1, dtype=np.float64)
    mass = np.log(edges) if exponent == 1.0 else edges ** (1 - exponent) / (1 - exponent)
    expected = np.diff(mass) / (mass[-1] - mass[0]) if rows > 1 else np.ones(1)
    assert counts[: expected.size] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("rows", [1, 2, 3, 10, 997, 1000, 1024])
def test_popular_ids_are_spread_by_a_permutation(rows: int) -> None:
    feature = _Feature(3, 1, rows, 0.0)
    ranks = np.arange(rows, dtype=np.uint64)
    ids = (ranks * feature._factor + feature._shift) % np.uint64(rows)
    assert sorted(ids.tolist()) == list(range(rows))


def test_huge_tables_cost_nothing_and_stay_in_range() -> None:
    for rows in (4_700_000_000, 2**40):
        ids, effects = _Feature(0, 0, rows, 1.05).draw((np.arange(10_000) + 0.5) / 10_000)
        assert ids.min() >= 0
        assert ids.max() < rows
        assert np.unique(ids).size > 2_500
        assert abs(effects.mean()) < 0.05
        assert effects.std() == pytest.approx(1.0, abs=0.05)


def test_a_sample_depends_on_its_number_alone(learn: Any) -> None:
    spec, schema = learn()
    encoder = SyntheticReader(spec, Split.TRAIN).encoder(schema, seed=0)
    together = encoder.encode(SyntheticRows(np.arange(100)))
    for part, numbers in zip(together.split([60, 40]), (np.arange(60), np.arange(60, 100)), strict=True):
        alone = encoder.encode(SyntheticRows(numbers))
        assert (alone.values == part.values).all()
        assert (alone.lengths == part.lengths).all()
        assert (alone.dense == part.dense).all()
        assert (alone.labels == part.labels).all()
    val = SyntheticReader(spec, Split.VAL).encoder(schema, seed=0).encode(SyntheticRows(np.arange(100)))
    assert (val.dense != together.dense).any()
    other = SyntheticReader(spec, Split.TRAIN).encoder(schema, seed=1).encode(SyntheticRows(np.arange(100)))
    assert (other.dense != together.dense).any()


def naive_auc(scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
    ones, zeros = scores[labels > 0.5], scores[labels < 0.5]
    return float(((ones[:, None] > zeros[None]) + 0.5 * (ones[:, None] == zeros[None])).mean())


def test_attainable_is_the_quality_of_the_teacher(learn: Any) -> None:
    spec, schema = learn(val_samples=3_000)
    found = attainable(spec, schema, 0)
    assert found is not None
    encoder = SyntheticReader(spec, Split.VAL).encoder(schema, seed=0)
    samples, probabilities = encoder.make(SyntheticRows(np.arange(3_000)))
    assert found.auc == pytest.approx(naive_auc(probabilities, samples.labels), abs=1e-4)  # 2^20 bins
    rate = float(samples.labels.mean())
    loss = -np.log(np.where(samples.labels > 0.5, probabilities, 1 - probabilities)).mean()
    assert found.ne == pytest.approx(loss / -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate)))


@pytest.mark.parametrize("seed", range(4))
def test_attainable_quality_is_alike_for_every_seed(learn: Any, seed: int) -> None:
    spec, schema = learn(seed=seed)
    found = attainable(spec, schema, seed)
    assert found is not None
    assert 0.80 < found.auc < 0.87
    assert 0.65 < found.ne < 0.80


def test_one_class_has_no_attainable_quality(learn: Any) -> None:
    spec, schema = learn(val_samples=1)
    assert attainable(spec, schema, 0) is None


def test_one_step_of_training_learns_from_the_tables(learn: Any, load: Any) -> None:
    """Mean label per id predicts far better than the base rate: the signal sits in the tables."""
    spec, schema = learn(num_samples=40_000)
    batch = load(spec, schema, size=40_000)[0]
    lengths = batch.sparse.lengths_by_feature
    values = batch.sparse.values.split(lengths.sum(1).tolist())
    score = np.zeros(40_000)
    labels = batch.labels.double().numpy()
    half = 20_000
    for index in range(5):  # the features with one id
        ids = values[index].numpy()
        sums = np.bincount(ids[:half], weights=labels[:half], minlength=1000)
        counts = np.bincount(ids[:half], minlength=1000)
        rate = (sums + 30 * labels.mean()) / (counts + 30)
        score += np.log(rate / (1 - rate))[ids]
    test = slice(half, half + 3_000)
    assert naive_auc(score[test], labels[test]) > 0.70
    dense = np.abs(np.corrcoef(batch.dense.T.numpy(), labels)[-1, :-1])
    assert dense.max() < 0.15


def test_no_torch_above_the_torch_line() -> None:
    code = (
        "import sys, neo.data.spec, neo.data.vocabulary, neo.data.synthetic, neo.data.parquet, neo.data.csv;"
        "import neo.data.criteo; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
    code = "import sys, neo.data.spec; sys.exit('numpy' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_no_dense_features(learn: Any, load: Any) -> None:
    assert DataConfig(num_dense=0).validate() == []
    spec, schema = learn(num_dense=0, num_samples=10)
    batch = load(spec, schema)[0]
    assert batch.dense.shape == (10, 0)
    assert batch.dense.dtype == torch.float32
