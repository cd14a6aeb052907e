"""Users' own loaders under NeoStrategy: dealt over the ranks, in step, whatever their lengths."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from click_module import Batches, ClickModule, Trained, fit, samples, trainer
from neo.data.batch import Batch
from neo.errors import DataError
from neo.optim.spec import SparseOptimizerSpec
from neo.strategy.neo_strategy import NeoStrategy
from worker_pool import WorkerPool

SGD = SparseOptimizerSpec(name="sgd", lr=0.5)
STEP = samples(12, seed=4)


def train_unequal(uneven: str) -> Trained:
    """Rank 0 has 3 batches of 2 samples, rank 1 has 2."""
    rank = dist.get_rank()
    own = [STEP.part(4 * step + 2 * rank, 4 * step + 2 * rank + 2) for step in range(3 - rank)]
    return fit(ClickModule(SGD), NeoStrategy(uneven=uneven, seed=3), Batches(own))


def train_equal(steps: int) -> Trained:
    """The same samples dealt equally; in step 2 rank 1 has no sample."""
    rank = dist.get_rank()
    parts = [STEP.part(4 * step + 2 * rank, 4 * step + 2 * rank + 2) for step in range(2)]
    parts.append(STEP.part(8, 10) if rank == 0 else STEP.part(8, 8))
    return fit(ClickModule(SGD), NeoStrategy(seed=3), Batches(parts[:steps]))


def same(found: Trained, expected: Trained) -> None:
    for name, value in {**expected.tables, **expected.dense}.items():
        torch.testing.assert_close({**found.tables, **found.dense}[name], value, rtol=0, atol=0, msg=name)


def test_r20_error_names_the_numbers_on_both_ranks(worker_pool: WorkerPool) -> None:
    for message in worker_pool.run(2, message_of_unequal, timeout_s=30):
        assert "rank 0 has 3, rank 1 has 2" in message


def message_of_unequal() -> str:
    with pytest.raises(DataError) as error:
        train_unequal("error")
    return str(error.value)


@pytest.mark.parametrize(("uneven", "steps"), [("stop", 2), ("pad", 3)])
def test_r20_stop_and_pad(worker_pool: WorkerPool, uneven: str, steps: int) -> None:
    expected = worker_pool.run(2, train_equal, steps)
    found = worker_pool.run(2, train_unequal, uneven, timeout_s=30)
    for rank in range(2):
        same(found[rank], expected[rank])
    assert [len(trained.seen) for trained in found] == [steps, steps]


@dataclass(frozen=True)
class Numbers(Dataset[int]):
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        return index


def collate(numbers: list[int]) -> Batch:
    ids = torch.tensor(numbers)
    dense = ids[:, None].expand(-1, 3).float()
    batch = STEP.part(0, len(numbers))
    return Batch(dense, batch.sparse, batch.labels)


class NoteNumbers(ClickModule):
    """Remember which samples this rank saw, by epoch."""

    def __init__(self) -> None:
        super().__init__(SGD, dense_lr=0.0)
        self.numbers: list[list[list[int]]] = []

    def on_train_epoch_start(self) -> None:
        self.numbers.append([])

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        self.numbers[-1].append(batch.dense[:, 0].long().tolist())
        return super().training_step(batch, batch_idx)


def seen_numbers(size: int, shuffle: bool, epochs: int, **options: Any) -> list[list[list[int]]]:
    module = NoteNumbers()
    loader = DataLoader(Numbers(size), batch_size=3, shuffle=shuffle, collate_fn=collate)
    fit(module, NeoStrategy(), loader, max_epochs=epochs, **options)
    return module.numbers


def test_a_dataloader_is_dealt_without_duplicates_and_in_order(worker_pool: WorkerPool) -> None:
    first, second = worker_pool.run(2, seen_numbers, 15, False, 1)
    assert (first[0], second[0]) == ([[0, 1, 2], [6, 7, 8], [12]], [[3, 4, 5], [9, 10, 11], [13, 14]])


def test_a_shuffled_dataloader_is_one_permutation_per_epoch(worker_pool: WorkerPool) -> None:
    first, second = worker_pool.run(2, seen_numbers, 15, True, 2)
    for mine, others in zip(first, second, strict=True):
        assert sorted(number for batch in mine + others for number in batch) == list(range(15))
    assert first[0] != first[1]


def test_own_sampling_is_left_alone(worker_pool: WorkerPool) -> None:
    first, second = worker_pool.run(2, seen_without_dealing)
    assert first == second == [[[0, 1, 2], [3, 4]]]


def seen_without_dealing() -> list[list[list[int]]]:
    return seen_numbers(5, False, 1, use_distributed_sampler=False)


class Predict(NoteNumbers):
    """Remember which samples this rank predicts."""

    def predict_step(self, batch: Batch, batch_idx: int) -> None:
        self.numbers[-1].append(batch.dense[:, 0].long().tolist())


def predicted_numbers() -> list[list[int]]:
    module = Predict()
    module.numbers.append([])
    loader = DataLoader(Numbers(15), batch_size=3, collate_fn=collate)
    trainer(NeoStrategy()).predict(module, loader, return_predictions=False)
    return module.numbers[0]


def test_predict_is_dealt_over_the_ranks_too(worker_pool: WorkerPool) -> None:
    first, second = worker_pool.run(2, predicted_numbers)
    assert (first, second) == ([[0, 1, 2], [6, 7, 8], [12]], [[3, 4, 5], [9, 10, 11], [13, 14]])
