"""A run that goes on from a checkpoint ends as if nothing had interrupted it."""

import errno
import json
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from integration.run_parent import prepare, train
from neo.checkpoint.folder import complete_checkpoints
from neo.checkpoint.manifest import read_manifest
from neo.checkpoint.store import load_rest, read_table
from neo.config.run_config import RunConfig
from neo.data.batch import Batch
from neo.errors import CheckpointError, ConfigError
from neo.strategy.callbacks import StepMeter
from neo.strategy.lightning_module import RecommendationModule
from neo.strategy.run import run_training
from neo.strategy.traffic import TrafficMeter
from worker_pool import WorkerPool

# 8 global batches in an epoch, the last of them smaller; learning rates that change at every step.
CHANGES: dict[str, dict[str, Any]] = {
    "data": {
        "name": "parquet",
        "num_samples": None,
        "val_samples": None,
        "shuffle_window": 700,
        "label": "label",
        "dense": ["price"],
        "categorical": ["item", "shop", "all_alike"],
    },
    "sharding": {"type": "row_wise"},
    "optim": {
        "sparse": {"name": "rowwise_adagrad", "lr": 0.2},
        "dense": {"name": "adam", "lr": 0.01},
        "schedule": {"name": "cosine", "decay_steps": 20},
    },
    "trainer": {"max_epochs": 2},
    "checkpoint": {"every_n_steps": 3, "keep_last": None},
}


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write 2,000 samples; one of the columns gives a table of three rows: fewer than ranks."""
    random = np.random.default_rng(7)
    items, shops, price = random.integers(0, 60, 2000), random.integers(0, 40, 2000), random.normal(size=2000)
    click = (items % 3 + shops % 2 + price + random.normal(size=2000) > 1.5).astype(int)
    path = tmp_path_factory.mktemp("data") / "clicks.parquet"
    columns = {"label": click, "price": price, "item": items, "shop": shops, "all_alike": np.zeros(2000, dtype=int)}
    pq.write_table(pa.table(columns), path, row_group_size=300)
    return str(path)


def prepared(run_dir: Path, world_size: int, clicks: str, **changes: Mapping[str, Any]) -> RunConfig:
    """Do the parent's work for a run of this file."""
    run_dir.mkdir()
    changes["data"] = {"path": clicks, "val_path": clicks, **changes.get("data", {})}
    merged = {group: {**CHANGES.get(group, {}), **changes.get(group, {})} for group in {*CHANGES, *changes}}
    return prepare(run_dir, world_size, **merged)


def run(pool: WorkerPool, run_dir: Path, world_size: int, clicks: str, **changes: Mapping[str, Any]) -> dict[str, Any]:
    """Train, and return the summary."""
    config = prepared(run_dir, world_size, clicks, **changes)
    summary: dict[str, Any] = pool.run(world_size, train, config, run_dir, timeout_s=120)[0]
    return summary


def content(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Return tables and dense part."""
    tables = {entry.key: read_table(checkpoint, entry) for entry in read_manifest(checkpoint).tables}
    dense: dict[str, torch.Tensor] = load_rest(checkpoint)["state_dict"]
    return tables | dense


def assert_same(checkpoint: Path, other: Path) -> None:
    ours, theirs = content(checkpoint), content(other)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


@pytest.fixture(scope="module")
def uninterrupted(
    worker_pool: WorkerPool, tmp_path_factory: pytest.TempPathFactory, clicks: str
) -> tuple[Path, dict[str, Any]]:
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    return run_dir, run(worker_pool, run_dir, 2, clicks)


def test_checkpoints_say_where_they_are(uninterrupted: tuple[Path, dict[str, Any]]) -> None:
    run_dir, summary = uninterrupted
    saved = complete_checkpoints(run_dir / "checkpoints")
    assert [path.name for path in saved] == [f"step_{step:06d}" for step in (3, 6, 9, 12, 15, 16)]
    facts = [read_manifest(path).facts for path in saved]
    assert [(fact.step, fact.epoch, fact.samples) for fact in facts] == [
        (3, 0, 768), (6, 0, 1536), (9, 1, 2256), (12, 1, 3024), (15, 1, 3792), (16, 2, 4000),
    ]  # fmt: skip
    assert [fact.val is not None for fact in facts] == [False] * 5 + [True]
    assert (run_dir / "checkpoints" / "last").resolve() == saved[-1]
    assert (summary["checkpoint"], summary["resumed_from"]) == ("checkpoints/step_000016", None)


@pytest.mark.parametrize(("step", "max_steps"), [(3, None), (9, 16)])
def test_a_resumed_run_ends_bit_equal(
    worker_pool: WorkerPool,
    tmp_path: Path,
    clicks: str,
    uninterrupted: tuple[Path, dict[str, Any]],
    step: int,
    max_steps: int | None,
) -> None:
    whole_dir, whole = uninterrupted
    source = str(whole_dir / "checkpoints" / f"step_{step:06d}")
    run_dir = tmp_path / "run"
    summary = run(worker_pool, run_dir, 2, clicks, checkpoint={"resume": source}, trainer={"max_steps": max_steps})
    assert_same(whole_dir / "checkpoints" / "step_000016", run_dir / "checkpoints" / "step_000016")
    assert (summary["steps"], summary["samples"], summary["resumed_from"]) == (16, 4_000, source)
    assert summary["val"] == whole["val"]
    assert summary["train_loss"] == whole["train_loss"]
    assert summary["step_time_s"]["p90"] < 10
    logged = (run_dir / "logs" / "metrics.csv").read_text()
    assert json.loads((run_dir / "progress.json").read_text())["steps"] == 16
    assert logged.count("\n") == 1 + sum(1 for at in (4, 8, 12, 16) if at > step) + (2 if step < 8 else 1)


@pytest.mark.parametrize(("world_size", "sharding"), [(1, "column_wise"), (4, "row_wise")])
def test_under_another_world_and_plan_it_ends_equal(
    worker_pool: WorkerPool,
    tmp_path: Path,
    clicks: str,
    uninterrupted: tuple[Path, dict[str, Any]],
    world_size: int,
    sharding: str,
) -> None:
    whole_dir, whole = uninterrupted
    source = str(whole_dir / "checkpoints" / "step_000009")
    changes = {"sharding": {"type": sharding}, "checkpoint": {"resume": source}}
    summary = run(worker_pool, tmp_path / "run", world_size, clicks, **changes)
    assert summary["samples"] == 4_000
    assert summary["val"]["log_loss"] == pytest.approx(whole["val"]["log_loss"], abs=1e-6)


def train_and_note(config: RunConfig, run_dir: Path) -> list[tuple[int, int, list[int]]]:
    """Train, and return of each batch its place in the epoch, and the ids of ``item`` in it."""
    seen = []
    step = RecommendationModule.training_step

    def noting(module: RecommendationModule, batch: Batch, batch_idx: int) -> torch.Tensor:
        seen.append((batch_idx, batch.index, batch.sparse.values[: batch.batch_size].tolist()))
        return step(module, batch, batch_idx)

    with mock.patch.object(RecommendationModule, "training_step", noting):
        run_training(config, run_dir=run_dir)
    return seen


def test_with_another_batch_size_every_sample_is_seen_once(
    worker_pool: WorkerPool, tmp_path: Path, clicks: str, uninterrupted: tuple[Path, dict[str, Any]]
) -> None:
    source = str(uninterrupted[0] / "checkpoints" / "step_000003")
    config = prepared(tmp_path / "parts", 1, clicks, checkpoint={"resume": source}, data={"global_batch_size": 100})
    rest = worker_pool.run(1, train_and_note, config, tmp_path / "parts", timeout_s=120)[0]
    config = prepared(tmp_path / "whole", 1, clicks)
    whole = worker_pool.run(1, train_and_note, config, tmp_path / "whole", timeout_s=120)[0]
    assert [place for place, _, _ in rest] == [*range(7, 20), *range(20)]
    assert [index for _, index, _ in rest] == [*range(7, 20), *range(20)]
    assert [item for _, _, items in rest for item in items] == [item for _, _, items in whole[3:] for item in items]


@pytest.mark.parametrize("limit", [{"max_epochs": 2}, {"max_epochs": None, "max_steps": 16}])
def test_a_run_that_had_reached_its_end_only_validates(
    worker_pool: WorkerPool,
    tmp_path: Path,
    clicks: str,
    uninterrupted: tuple[Path, dict[str, Any]],
    limit: dict[str, Any],
) -> None:
    whole_dir, whole = uninterrupted
    resume = str(whole_dir / "checkpoints" / "last")
    summary = run(worker_pool, tmp_path / "run", 2, clicks, checkpoint={"resume": resume}, trainer=limit)
    assert (summary["status"], summary["steps"], summary["samples"]) == ("done", 16, 4_000)
    assert (summary["val"], summary["train_loss"]) == (whole["val"], whole["train_loss"])
    assert summary["traffic_bytes_per_step"] is None


def train_and_be_ended(config: RunConfig, run_dir: Path) -> dict[str, Any] | None:
    """Train, and get SIGTERM on rank 1 after step 10."""

    def after_step(meter: StepMeter, trainer: Any, *others: object) -> None:
        if trainer.global_step == 10 and trainer.global_rank == 1:
            signal.raise_signal(signal.SIGTERM)

    with mock.patch.object(TrafficMeter, "on_train_batch_end", after_step):
        return run_training(config, run_dir=run_dir)


def test_after_sigterm_on_one_rank_all_save_and_leave(
    worker_pool: WorkerPool, tmp_path: Path, clicks: str, uninterrupted: tuple[Path, dict[str, Any]]
) -> None:
    run_dir, resumed_dir = tmp_path / "run", tmp_path / "resumed"
    config = prepared(run_dir, 2, clicks, checkpoint={"every_n_steps": None})
    summary = worker_pool.run(2, train_and_be_ended, config, run_dir, timeout_s=120)[0]
    assert (summary["status"], summary["steps"]) == ("preempted", 11)
    assert summary["checkpoint"] == "checkpoints/step_000011"
    run(worker_pool, resumed_dir, 2, clicks, checkpoint={"resume": str(run_dir / "checkpoints")})
    assert_same(uninterrupted[0] / "checkpoints" / "step_000016", resumed_dir / "checkpoints" / "step_000016")


def test_the_best_is_kept_and_weights_alone_start_a_new_run(
    worker_pool: WorkerPool, tmp_path: Path, clicks: str, uninterrupted: tuple[Path, dict[str, Any]]
) -> None:
    rising = {
        "sparse": {"name": "sgd", "lr": 30.0},
        "schedule": {"name": "step", "milestones": [8], "step_factor": 3.0},
    }
    source = str(uninterrupted[0] / "checkpoints" / "step_000016")
    saving = {"every_n_steps": None, "keep_last": 1, "monitor": "log_loss", "weights_from": source, "at_end": True}
    run_dir = tmp_path / "run"
    summary = run(worker_pool, run_dir, 2, clicks, optim=rising, checkpoint=saving)
    saved = complete_checkpoints(run_dir / "checkpoints")
    assert [path.name for path in saved] == ["step_000008", "step_000016"]
    assert (run_dir / "checkpoints" / "best").resolve() == saved[0]
    assert summary["resumed_from"] is None


def test_a_checkpoint_that_cannot_be_written_ends_the_run_and_leaves_the_one_before(
    worker_pool: WorkerPool, tmp_path: Path, clicks: str
) -> None:
    run_dir = tmp_path / "run"
    config = prepared(run_dir, 1, clicks, data={"val_path": None})
    text = "step_000006' cannot be written: .*No space left on device"
    with pytest.raises(CheckpointError, match=text):
        worker_pool.run(1, train_on_a_full_disk, config, run_dir, timeout_s=120)
    assert [path.name for path in complete_checkpoints(run_dir / "checkpoints")] == ["step_000003"]
    assert (run_dir / "checkpoints" / "last").resolve().name == "step_000003"


def train_on_a_full_disk(config: RunConfig, run_dir: Path) -> None:
    """Train on a disk that is full after the first checkpoint."""
    forces = os.fsync

    def full(handle: int) -> None:
        if (run_dir / "checkpoints" / ".step_000006.saving").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        forces(handle)

    with mock.patch.object(os, "fsync", full):
        run_training(config, run_dir=run_dir)


def test_a_damaged_checkpoint_is_refused_and_the_one_before_loads(
    worker_pool: WorkerPool, tmp_path: Path, clicks: str, uninterrupted: tuple[Path, dict[str, Any]]
) -> None:
    folder = shutil.copytree(uninterrupted[0] / "checkpoints", tmp_path / "checkpoints", symlinks=True)
    damaged = folder / "step_000016" / "rest.pt"
    flipped = bytearray(damaged.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    damaged.write_bytes(flipped)
    with pytest.raises(CheckpointError, match=r"step_000016.*rest\.pt"):
        run(worker_pool, tmp_path / "damaged", 2, clicks, checkpoint={"resume": str(folder)})
    cut = folder / "step_000015" / "rest.pt"
    cut.write_bytes(cut.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=r"checkpoint\.resume: .*step_000015' is damaged: rest\.pt has"):
        prepared(tmp_path / "cut", 2, clicks, checkpoint={"resume": str(folder / "step_000015")})
    summary = run(worker_pool, tmp_path / "run", 2, clicks, checkpoint={"resume": str(folder / "step_000012")})
    assert summary["val"] == uninterrupted[1]["val"]
