"""When a run saves, without a trainer's loop."""

import signal
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from neo.checkpoint.spec import CheckpointConfig
from neo.metrics.binary import BinaryReport
from neo.strategy.checkpoint_writer import CheckpointWriter, metrics_of
from neo.strategy.lightning_module import RecommendationModule
from neo.strategy.preemption import DelayedVote, Preempted, SigtermNotice
from worker_pool import WorkerPool


class FakeTrainer:
    """One rank that counts steps and notes at which it was saved; every fourth step is followed by a validation."""

    is_global_zero = True

    def __init__(self) -> None:
        self.global_step = 0
        self.saved: list[int] = []
        self.state = SimpleNamespace(fn="fit")
        loop = SimpleNamespace(_should_check_val_fx=lambda fetcher: self.global_step % 4 == 0)
        self.fit_loop = SimpleNamespace(_data_fetcher=object(), epoch_loop=loop)

    def save_checkpoint(self, path: Path, *, weights_only: bool) -> None:
        assert not weights_only
        assert path.name == f"step_{self.global_step:06d}"
        self.saved.append(self.global_step)


def module_with(report: BinaryReport | None) -> Any:
    module = object.__new__(RecommendationModule)
    torch.nn.Module.__init__(module)
    module.report = report
    return module


def run(writer: CheckpointWriter, trainer: Any, steps: int, module: Any = None) -> list[int]:
    module = module_with(None) if module is None else module
    writer.on_train_start(trainer, module)
    for _ in range(steps):
        trainer.global_step += 1
        writer.on_train_batch_end(trainer, module, None, None, 0)
        if trainer.global_step % 4 == 0:
            writer.on_validation_batch_end(trainer, module, None, None, 0)
            writer.on_validation_end(trainer, module)
    writer.on_train_end(trainer, module)
    return list(trainer.saved)


@pytest.fixture
def notice() -> Any:
    found = SigtermNotice()
    yield found
    found.restore()


def writer_of(tmp_path: Path, notice: SigtermNotice, **settings: Any) -> CheckpointWriter:
    return CheckpointWriter(CheckpointConfig(**settings).to_spec(), tmp_path, notice=notice)


def test_by_steps_and_at_the_end(tmp_path: Path, notice: SigtermNotice) -> None:
    assert run(writer_of(tmp_path, notice, every_n_steps=3), FakeTrainer(), 7) == [3, 6, 7]
    assert run(writer_of(tmp_path, notice, every_n_steps=3), FakeTrainer(), 6) == [3, 6]
    assert run(writer_of(tmp_path, notice, at_end=False), FakeTrainer(), 5) == []


def test_a_step_with_a_validation_is_saved_after_it(tmp_path: Path, notice: SigtermNotice) -> None:
    trainer, writer, module = FakeTrainer(), writer_of(tmp_path, notice, every_n_steps=4), module_with(None)
    writer.on_train_start(trainer, module)  # type: ignore[arg-type]
    trainer.global_step = 4
    writer.on_train_batch_end(trainer, module, None, None, 0)  # type: ignore[arg-type]
    assert trainer.saved == []
    writer.on_validation_end(trainer, module)  # type: ignore[arg-type]
    assert trainer.saved == [4]


def test_sigterm_ends_the_validation_after_the_training_if_its_step_is_saved(
    tmp_path: Path, notice: SigtermNotice
) -> None:
    for at_end in (True, False):
        writer, trainer, module = writer_of(tmp_path, notice, at_end=at_end), FakeTrainer(), module_with(None)
        writer.on_train_start(trainer, module)  # type: ignore[arg-type]
        trainer.global_step = 3
        writer.on_train_end(trainer, module)  # type: ignore[arg-type]
        trainer.state.fn = "validate"
        writer.on_validation_start(trainer, module)  # type: ignore[arg-type]
        writer.on_validation_batch_end(trainer, module, None, None, 0)  # type: ignore[arg-type]
        notice.received = True
        with pytest.raises(Preempted) if at_end else nullcontext():
            writer.on_validation_batch_end(trainer, module, None, None, 1)  # type: ignore[arg-type]
        notice.received = False
        assert trainer.saved == ([3] if at_end else [])


def test_by_time(tmp_path: Path, notice: SigtermNotice, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 25))  # every look at the clock is 25 s later
    monkeypatch.setattr("neo.strategy.checkpoint_writer.time.monotonic", lambda: next(clock))
    # Step 3 looks 75 s after the start and is saved at 100 s; step 4 looks at 125 s and 150 s, step 5 at 175 s.
    assert run(writer_of(tmp_path, notice, every_minutes=1.0, at_end=False), FakeTrainer(), 6) == [3, 5]


def test_sigterm_saves_and_leaves(tmp_path: Path, notice: SigtermNotice) -> None:
    trainer, writer = FakeTrainer(), writer_of(tmp_path, notice)
    module = module_with(None)
    writer.on_train_start(trainer, module)  # type: ignore[arg-type]
    trainer.global_step = 2
    writer.on_train_batch_end(trainer, module, None, None, 0)  # type: ignore[arg-type]
    assert trainer.saved == []
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(Preempted):
        writer.on_validation_batch_end(trainer, module, None, None, 0)  # type: ignore[arg-type]
    assert trainer.saved == [2]


def test_the_handler_of_before_comes_back(notice: SigtermNotice) -> None:
    before = signal.getsignal(signal.SIGTERM)
    notice.listen()
    notice.listen()
    assert signal.getsignal(signal.SIGTERM) != before
    notice.restore()
    assert signal.getsignal(signal.SIGTERM) == before


def test_what_a_checkpoint_says_of_a_validation() -> None:
    report = BinaryReport(0.8, 1e-5, float("inf"), 0.7, 0.78, 1.01, 100)
    assert metrics_of(report) == {"auc": 0.8, "ne": 0.7, "log_loss": None, "accuracy": 0.78}
    assert metrics_of(None) is None


def _votes() -> list[tuple[bool, ...]]:
    vote, rank = DelayedVote(), dist.get_rank()
    vote.begin()
    heard = [vote.cast(rank == 1 and step == 1, rank == 0 and step == 2) for step in range(4)]
    return [*heard, vote.end(), vote.end()]


def test_all_ranks_hear_a_vote_one_step_later(worker_pool: WorkerPool) -> None:
    no = (False, False)
    expected = [no, no, (True, False), (False, True), no, ()]
    assert worker_pool.run(2, _votes) == [expected, expected]
    alone = DelayedVote()
    alone.begin()
    assert alone.cast(True, False) == (True, False)
