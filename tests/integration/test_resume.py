"""A run that goes on from a checkpoint ends as if nothing had interrupted it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from integration.run_parent import prepare, train
from neo.checkpoint.folder import complete_checkpoints
from neo.checkpoint.manifest import read_manifest
from neo.checkpoint.store import load_rest, read_table
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


def run(pool: WorkerPool, run_dir: Path, world_size: int, clicks: str, **changes: Mapping[str, Any]) -> dict[str, Any]:
    run_dir.mkdir()
    changes["data"] = {"path": clicks, "val_path": clicks, **changes.get("data", {})}
    merged = {group: {**CHANGES.get(group, {}), **changes.get(group, {})} for group in {*CHANGES, *changes}}
    config = prepare(run_dir, world_size, **merged)
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
