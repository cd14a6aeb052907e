"""``data_statistics.json``: how often ids occur, by frequency rank, in a form that needs no data to be read again.

``{"version": 1, "num_samples": N, "features": [{...}]}``; a feature holds:

- ``name``; ``num_ids``: occurrences in all; ``num_missing``: null ids, which are not among them;
- ``num_distinct``, and ``is_exact``: whether that and the counts are exact; ``most_missed``: the most by which the
  count of one id can be too low where they are not;
- ``rank_ends``: ids are ordered by how often they occur, the most frequent has rank 1; bucket i holds the ranks from
  ``rank_ends[i - 1] + 1`` (1 for the first) to ``rank_ends[i]``;
- ``counts``: occurrences of all ids of bucket i;
- ``zipf_exponent``: the s by which weights rank^-s fit best, null for fewer than two ids;
- ``mean_ids_per_sample``.

So the share of lookups that the k most frequent rows catch, which sizes a cache, is ``share_of_top(k)``.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from neo.errors import DataError

_VERSION = 1


@dataclass(frozen=True)
class FeatureStatistics:
    """One feature; the module's text says what each field is."""

    name: str
    num_ids: int
    num_missing: int
    num_distinct: int
    is_exact: bool
    most_missed: int
    mean_ids_per_sample: float
    zipf_exponent: float | None
    rank_ends: tuple[int, ...]
    counts: tuple[int, ...]

    def share_of_top(self, num_rows: int) -> float:
        """Return the share of the occurrences that the most frequent ``num_rows`` ids make up; even within a bucket."""
        total, reached, start = sum(self.counts), 0.0, 0
        if total == 0:
            return 0.0
        for end, count in zip(self.rank_ends, self.counts, strict=True):
            reached += count * min(1.0, max(0, num_rows - start) / (end - start))
            start = end
        return reached / total


@dataclass(frozen=True)
class DataStatistics:
    """All features of a data set."""

    num_samples: int
    features: tuple[FeatureStatistics, ...]


def write_statistics(path: Path, statistics: DataStatistics) -> None:
    """Write the file whole or not at all."""
    content = {"version": _VERSION, **asdict(statistics)}
    written = path.with_name(f".{path.name}.new")
    written.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    written.replace(path)


def read_statistics(path: Path) -> DataStatistics:
    """Read what ``write_statistics`` wrote.

    Raises:
        DataError: The file is missing, of another version, or no such file.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != _VERSION:
            raise DataError(f"'{path}' has version {content['version']}, not {_VERSION}; run neo data check again")
        features = tuple(
            FeatureStatistics(
                **{**feature, "rank_ends": tuple(feature["rank_ends"]), "counts": tuple(feature["counts"])}
            )
            for feature in content["features"]
        )
        return DataStatistics(content["num_samples"], features)
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"'{path}' holds no data statistics ({error}); run neo data check again") from None
