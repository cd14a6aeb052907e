"""Are labels mixed over the data, or sorted, grouped or drifting? One pass, bounded memory, torch-free.

Shapes: n labels.
"""

import math
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", int, float)

_MOST_SEGMENTS = 2048
_COMPARED_SEGMENTS = 32


class LabelOrder:
    """Counts the runs of equal labels, and the labels of consecutive segments.

    A label counts as positive from 0.5 on. Source: Wald, Wolfowitz: On a Test Whether Two Samples are from the Same
    Population, 1940 (runs).
    """

    def __init__(self) -> None:
        self._segment = 256
        self._positives: list[float] = []
        self._sizes: list[int] = []
        self._last: bool | None = None
        self._runs = 0
        self.num_labels = 0
        self.num_positives = 0

    def add(self, labels: NDArray[np.float32]) -> None:
        """Take ``[n]`` labels in [0, 1] into account, in their order."""
        if labels.size == 0:
            return
        positive = labels >= 0.5
        self._runs += int(np.count_nonzero(positive[1:] != positive[:-1]))
        self._runs += int(self._last is None or bool(positive[0]) != self._last)
        self._last = bool(positive[-1])
        segments = (self.num_labels + np.arange(labels.size)) // self._segment
        first = int(segments[0])
        sums = np.bincount(segments - first, weights=positive)
        sizes = np.bincount(segments - first)
        for place, (total, size) in enumerate(zip(sums.tolist(), sizes.tolist(), strict=True), start=first):
            if place == len(self._sizes):
                self._positives.append(0.0)
                self._sizes.append(0)
            self._positives[place] += total
            self._sizes[place] += size
        self.num_labels += labels.size
        self.num_positives += int(np.count_nonzero(positive))
        while len(self._sizes) > _MOST_SEGMENTS:
            self._positives, self._sizes = _pairs(self._positives), _pairs(self._sizes)
            self._segment *= 2

    @property
    def rate(self) -> float:
        """The share of positive labels; NaN of nothing."""
        return self.num_positives / self.num_labels if self.num_labels else math.nan

    @property
    def runs_ratio(self) -> float | None:
        """Runs as a share of those that mixed labels have on average; None if all labels are equal.

        Also None where there are too few labels to tell: mixed ones would come this far from 1 now and then.
        """
        ones, zeros = self.num_positives, self.num_labels - self.num_positives
        if not ones or not zeros:
            return None
        expected = 2.0 * ones * zeros / self.num_labels + 1
        deviation = math.sqrt(max(0.0, (expected - 1) * (expected - 2) / max(1, self.num_labels - 1)))
        return self._runs / expected if deviation == 0 or abs(self._runs - expected) > 6 * deviation else 1.0

    def segment_rates(self) -> list[float]:
        """Return the label rate of up to 32 consecutive parts of the data of about equal size."""
        groups = np.array_split(np.arange(len(self._sizes)), min(_COMPARED_SEGMENTS, max(1, len(self._sizes))))
        rates = []
        for group in groups:
            size = sum(self._sizes[place] for place in group)
            if size:
                rates.append(sum(self._positives[place] for place in group) / size)
        return rates

    @property
    def drift(self) -> float:
        """How far the rates of the parts lie from the whole's, beyond chance, relative to the rarer label's rate."""
        rates, rate = self.segment_rates(), self.rate
        if len(rates) < 2 or not 0 < rate < 1:
            return 0.0
        chance = 4 * math.sqrt(rate * (1 - rate) / (self.num_labels / len(rates)))
        furthest = max(abs(part - rate) for part in rates)
        return furthest / min(rate, 1 - rate) if furthest > chance else 0.0


def _pairs(values: list[T]) -> list[T]:
    odd: list[Any] = [*values, 0] if len(values) % 2 else list(values)
    return [left + right for left, right in zip(odd[::2], odd[1::2], strict=True)]
