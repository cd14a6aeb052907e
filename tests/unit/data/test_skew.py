from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from neo.data.skew import rank_ends, rank_histogram, zipf_exponent
from neo.data.statistics_file import DataStatistics, FeatureStatistics, read_statistics, write_statistics
from neo.errors import DataError


def test_buckets_cover_every_rank_once() -> None:
    for count in (0, 1, 16, 17, 1000, 10**9):
        ends = rank_ends(count)
        assert ends.tolist()[: min(count, 16)] == list(range(1, min(count, 16) + 1))
        assert (np.diff(ends) > 0).all()
        assert (ends[-1] if count else 0) == count
    assert rank_ends(10**9).size < 130


def test_ids_without_a_count_share_the_rest() -> None:
    ends, counts = rank_histogram(np.array([50, 30]), 12, 100)
    assert ends.tolist() == list(range(1, 13))
    assert counts.tolist() == [50, 30, *[2] * 10]
    ends, counts = rank_histogram(np.array([5, 5]), 1, 10)  # an estimate below what is known
    assert counts.tolist() == [5, 5]


@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.05, 2.0])
def test_the_exponent_of_exact_weights_is_found(exponent: float) -> None:
    weights = np.arange(1, 20_001) ** -exponent
    counts = np.round(weights / weights.sum() * 1e10).astype(np.int64)
    ends, buckets = rank_histogram(counts, 20_000, int(counts.sum()))
    assert zipf_exponent(ends, buckets) == pytest.approx(exponent, abs=0.01)


def test_no_exponent_of_one_id() -> None:
    assert zipf_exponent(*rank_histogram(np.array([9]), 1, 9)) is None


def test_the_file_gives_back_what_was_written(tmp_path: Path) -> None:
    feature = FeatureStatistics("C1", 10, 2, 3, True, 0, 1.2, 0.5, (1, 2, 3), (6, 3, 1))
    statistics = DataStatistics(12, (feature, replace(feature, name="C2", zipf_exponent=None)))
    path = tmp_path / "data_statistics.json"
    write_statistics(path, statistics)
    assert read_statistics(path) == statistics
    assert [file.name for file in tmp_path.iterdir()] == ["data_statistics.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", r"holds no data statistics \('version'\); run neo data check again"),
        ("[", "holds no data statistics"),
        ('{"version": 9}', "has version 9, not 1; run neo data check again"),
        ('{"version": 1, "num_samples": 1, "features": [{"rank_ends": [], "counts": []}]}', "holds no data statistics"),
    ],
)
def test_other_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_statistics(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"x.json' cannot be read: No such file"):
        read_statistics(tmp_path / "x.json")
