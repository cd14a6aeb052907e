import math
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from neo.metrics.binary import NUM_BINS, BinaryMetrics, BinaryReport, NoAuc
from worker_pool import WorkerPool


def exact_auc(logits: Tensor, labels: Tensor) -> float:
    positive, negative = logits[labels == 1], logits[labels == 0]
    difference = positive[:, None] - negative[None, :]
    return float(((difference > 0).double() + (difference == 0).double() / 2).mean())


def report(logits: Tensor, labels: Tensor, batches: int = 1) -> BinaryReport:
    metrics = BinaryMetrics()
    for part in range(batches):
        metrics.update(logits[part::batches], labels[part::batches])
    return metrics.report()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("batches", [1, 7])
def test_auc_is_within_its_stated_error(scale: float, batches: int) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2000, generator=generator) * scale
    labels = torch.bernoulli(torch.sigmoid(logits / scale), generator=generator)
    found = report(logits, labels, batches)
    assert found.auc is not None
    assert found.auc_error is not None
    assert abs(found.auc - exact_auc(logits, labels)) <= found.auc_error + 1e-12
    assert found.auc_error < 2e-4


def test_ties_count_half() -> None:
    found = report(torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.tensor([1.0, 0.0, 0.0, 1.0]))
    assert found.auc == 0.25
    assert found.auc_error == 0.25


def test_values_are_those_of_the_formulas() -> None:
    logits, labels = torch.tensor([2.0, -1.0, 0.5, -3.0]), torch.tensor([1.0, 0.0, 0.0, 1.0])
    found = report(logits, labels)
    loss = float(functional.binary_cross_entropy_with_logits(logits.double(), labels.double()))
    assert found.log_loss == pytest.approx(loss, rel=1e-12)
    assert found.ne == pytest.approx(loss / math.log(2), rel=1e-12)
    assert found.accuracy == 0.5
    assert found.calibration == pytest.approx(float(torch.sigmoid(logits.double()).mean()) / 0.5, rel=1e-12)
    assert found.samples == 4


def test_the_mean_label_as_prediction_has_entropy_one() -> None:
    labels = torch.tensor([1.0, 0.0, 0.0, 0.0])
    found = report(torch.full((4,), math.log(1 / 3)), labels)
    assert found.ne == pytest.approx(1.0, abs=1e-6)
    assert found.calibration == pytest.approx(1.0, abs=1e-6)
    assert found.auc == 0.5


def test_huge_logits_keep_the_log_loss_finite() -> None:
    found = report(torch.tensor([1e6, -1e6, 1e6]), torch.tensor([1.0, 0.0, 0.0]))
    assert found.log_loss == pytest.approx(1e6 / 3)
    assert found.auc == 0.75


def test_soft_labels_are_shares_of_both_classes() -> None:
    soft = report(torch.tensor([1.0, -1.0]), torch.tensor([0.75, 0.25]))
    hard = report(torch.tensor([1.0] * 4 + [-1.0] * 4), torch.tensor([1.0, 1, 1, 0, 1, 0, 0, 0]))
    assert (soft.auc, soft.log_loss) == pytest.approx((hard.auc, hard.log_loss))


def test_one_class_has_no_auc() -> None:
    found = report(torch.tensor([1.0, 2.0]), torch.ones(2))
    assert (found.auc, found.auc_error, found.ne, found.samples) == (None, None, None, 2)
    assert found.log_loss is not None
    assert report(torch.tensor([1.0]), torch.zeros(1)).calibration is None


def test_no_samples_at_all() -> None:
    assert report(torch.empty(0), torch.empty(0)) == BinaryReport(
        None, None, None, None, None, None, 0, NoAuc.NO_SAMPLES
    )


def test_a_logit_that_is_not_a_number_is_not_hidden() -> None:
    for broken in (math.nan, math.inf, -math.inf):
        for labels in ([1.0, 0.0], [1.0, 1.0]):
            found = report(torch.tensor([broken, 1.0]), torch.tensor(labels))
            assert (found.auc, found.no_auc) == (None, NoAuc.NOT_FINITE)
            assert found.no_auc == "logits are not finite"


def test_memory_is_bounded_and_not_saved() -> None:
    metrics = BinaryMetrics()
    metrics.update(torch.randn(10_000), torch.ones(10_000))
    assert metrics.positives.numel() == metrics.negatives.numel() == NUM_BINS
    assert metrics.state_dict() == {}


def report_of_rank(parts: list[tuple[list[float], list[float]]]) -> BinaryReport:
    logits, labels = parts[dist.get_rank()]
    metrics = BinaryMetrics()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics.update(torch.tensor(logits), torch.tensor(labels))
        return metrics.report()


@pytest.mark.parametrize(
    "parts",
    [
        [([0.9, 0.8], [1.0, 0.0]), ([0.3, 0.2], [1.0, 0.0])],
        [([0.9, 0.3], [1.0, 1.0]), ([0.8, 0.2], [0.0, 0.0])],
        [([0.9, 0.8, 0.3, 0.2], [1.0, 0.0, 1.0, 0.0]), ([], [])],
    ],
    ids=["as given", "a rank with one class", "a rank without samples"],
)
def test_r32_auc_over_ranks(worker_pool: WorkerPool, parts: list[tuple[list[float], list[float]]]) -> None:
    for found in worker_pool.run(2, report_of_rank, parts):
        assert found.auc == 0.75
        assert found.samples == 4
        assert found.accuracy == 0.5


def test_r32_one_class_over_all_ranks(worker_pool: WorkerPool) -> None:
    for found in worker_pool.run(2, report_of_rank, [([0.9], [1.0]), ([], [])]):
        assert (found.auc, found.ne, found.samples, found.no_auc) == (None, None, 1, NoAuc.ONE_CLASS)
