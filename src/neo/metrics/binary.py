"""Quality of predicted probabilities over all ranks: AUC, log loss, normalized entropy, accuracy, calibration.

The AUC comes from two histograms of the logits, so memory does not grow with the samples. It is exact but for pairs
of a positive and a negative sample that fall into the same bin; half of those pairs' share bounds its error.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional
from torchmetrics import Metric

NUM_BINS = 2**16
# Bins are of equal width in asinh(logit * SCALE): 4e-4 of a logit's size each, 5e-7 around zero, to a size of 10^4.
_SCALE = 1e3
_LIMIT = math.asinh(1e4 * _SCALE)


class NoAuc(StrEnum):
    """Why there is no AUC."""

    NO_SAMPLES = "no samples"
    NOT_FINITE = "logits are not finite"
    ONE_CLASS = "one class only"


@dataclass(frozen=True)
class BinaryReport:
    """The metrics over all samples of all ranks; None where a metric is undefined.

    Attributes:
        auc: Area under the ROC curve; None where ``no_auc`` says why.
        auc_error: Bound of the error that the histogram adds to ``auc``.
        log_loss: Mean of the binary cross-entropy, in nats.
        ne: Normalized entropy: ``log_loss`` over that of always predicting the mean label; None with one class.
            Source: He et al., Practical Lessons from Predicting Clicks on Ads at Facebook, 2014.
        accuracy: Share of samples on the right side of probability 0.5.
        calibration: Mean prediction over mean label; None without positive samples.
        samples: Number of samples.
        no_auc: Why there is no AUC; None if there is one.
    """

    auc: float | None
    auc_error: float | None
    log_loss: float | None
    ne: float | None
    accuracy: float | None
    calibration: float | None
    samples: int
    no_auc: NoAuc | None = None


class BinaryMetrics(Metric):
    """All metrics of predicted probabilities in one object, whose states add up over ranks.

    Call ``update`` per batch and ``report`` on every rank at the end; ranks may have no samples at all.
    """

    full_state_update = False
    positives: Tensor
    negatives: Tensor
    sums: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(dist_sync_fn=kwargs.pop("dist_sync_fn", _all_reduce), **kwargs)
        for name in ("positives", "negatives"):
            self.add_state(name, torch.zeros(NUM_BINS, dtype=torch.float64), dist_reduce_fx="sum")
        # sums of: loss, prediction, label, correct, samples, logits that are not finite
        self.add_state("sums", torch.zeros(6, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch.

        Args:
            logits: ``[B]``; B may be 0.
            labels: ``[B]`` in [0, 1]; a label between counts as a share of both classes.
        """
        scores, targets = logits.detach().double(), labels.double()
        position = torch.asinh(scores * _SCALE) / _LIMIT  # in [-1, 1]
        bins = ((position + 1) * (NUM_BINS / 2)).nan_to_num(0.0).long().clamp_(0, NUM_BINS - 1)
        self.positives += torch.bincount(bins, weights=targets, minlength=NUM_BINS)
        self.negatives += torch.bincount(bins, weights=1 - targets, minlength=NUM_BINS)
        loss = functional.binary_cross_entropy_with_logits(scores, targets, reduction="sum")
        correct = ((scores > 0) == (targets > 0.5)).sum()
        samples = torch.full_like(loss, targets.numel())
        broken = (~scores.isfinite()).sum().double()
        self.sums += torch.stack((loss, torch.sigmoid(scores).sum(), targets.sum(), correct.double(), samples, broken))

    def compute(self) -> dict[str, Tensor]:
        """Return every metric as a float64 scalar, NaN where it is undefined; see ``BinaryReport``."""
        loss, prediction, label, correct, samples, broken = self.sums.unbind()
        rate = label / samples
        positive, negative = self.positives.sum(), self.negatives.sum()
        pairs = torch.where(broken > 0, math.nan, positive * negative)  # a logit that is NaN has no place in the order
        below = self.negatives.cumsum(0) - self.negatives
        entropy = -(torch.xlogy(rate, rate) + torch.xlogy(1 - rate, 1 - rate))
        ratio = (loss / samples) / entropy
        return {
            "auc": (self.positives * (below + self.negatives / 2)).sum() / pairs,
            "auc_error": (self.positives * self.negatives).sum() / 2 / pairs,
            "log_loss": loss / samples,
            "ne": torch.where(entropy > 0, ratio, math.nan),
            "accuracy": correct / samples,
            "calibration": torch.where(label > 0, prediction / label, math.nan),
            "samples": samples,
            "not_finite": broken,
        }

    def report(self) -> BinaryReport:
        """Return the metrics over all ranks. Every rank must call it."""
        values = {name: float(value) for name, value in self.compute().items()}
        samples, broken = int(values.pop("samples")), int(values.pop("not_finite"))
        known = {name: value if math.isfinite(value) else None for name, value in values.items()}
        why = None
        if known["auc"] is None:
            why = NoAuc.NO_SAMPLES if samples == 0 else NoAuc.NOT_FINITE if broken else NoAuc.ONE_CLASS
        return BinaryReport(**known, samples=samples, no_auc=why)


def _all_reduce(state: Tensor, group: Any) -> list[Tensor]:
    """Add up a state over the ranks: one copy, where torchmetrics' default gathers one per rank."""
    total = state.clone()
    dist.all_reduce(total, group=group)
    return [total]
