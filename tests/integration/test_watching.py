"""What watches a run, on real ranks: validations in mid-epoch, stopping, traces, learning rates, standstill."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from integration.run_parent import prepare, train
from neo.errors import NotTrainedError
from neo.sharded.stages import Stage
from worker_pool import WorkerPool

QUIET = {"progress_bar": False}


def _run(pool: WorkerPool, run_dir: Path, **changes: Any) -> dict[str, Any]:
    run_dir.mkdir()
    config = prepare(run_dir, 2, **{**changes, "trainer": {**QUIET, **changes.get("trainer", {})}})
    summary: dict[str, Any] = pool.run(2, train, config, run_dir, timeout_s=120)[0]
    return summary


def _logged(run_dir: Path) -> list[dict[str, str]]:
    with (run_dir / "logs" / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _steps_of(run_dir: Path, name: str) -> list[int]:
    return [int(row["step"]) for row in _logged(run_dir) if row.get(name)]


def test_validations_in_mid_epoch_change_nothing(worker_pool: WorkerPool, tmp_path: Path) -> None:
    """Two epochs of 8 steps; adam and fp16 tables, so that states and random rounding would show a difference."""
    optim = {"sparse": {"name": "adam", "lr": 0.01, "weights_dtype": "fp16"}}
    without = _run(worker_pool, tmp_path / "without", optim=optim)
    steps = {"val_check_interval": 3, "limit_val_batches": 2}
    within = _run(worker_pool, tmp_path / "within", optim=optim, trainer=steps)
    assert without["train_loss"] == within["train_loss"]
    assert _steps_of(tmp_path / "without", "val/auc") == [8, 16]
    assert _steps_of(tmp_path / "within", "val/auc") == [3, 6, 9, 12, 15, 16]  # over both epochs, and at the end
    assert within["val"]["samples"] == 512
    parts = _run(worker_pool, tmp_path / "parts", optim=optim, trainer={"val_check_interval": 0.5})
    assert _steps_of(tmp_path / "parts", "val/auc") == [4, 8, 12, 16]
    assert (parts["train_loss"], parts["val"]) == (without["train_loss"], without["val"])


def test_a_run_ends_at_its_goal_on_all_ranks(worker_pool: WorkerPool, tmp_path: Path) -> None:
    summary = _run(
        worker_pool,
        tmp_path / "run",
        callbacks={"stop_at": {"log_loss": 100.0}},
        trainer={"val_check_interval": 2},
        logger={"names": ["csv"]},
    )
    assert (summary["status"], summary["steps"], summary["samples"]) == ("done", 2, 512)
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_a_trace_has_every_stage_of_every_traced_step(worker_pool: WorkerPool, tmp_path: Path) -> None:
    """And R16: the rates of the sparse group are logged at every step, those that the step was done with."""
    run_dir = tmp_path / "run"
    optim: dict[str, Any] = {"sparse": {"name": "sgd", "lr": 0.1}, "dense": {"name": "sgd", "lr": 0.1}}
    optim["schedule"] = {"name": "step", "milestones": [2], "step_factor": 0.5}
    watched = {"profiler": {"from_step": 3, "num_steps": 2}, "assert_trained": True, "learning_rate_monitor": True}
    _run(worker_pool, run_dir, callbacks=watched, optim=optim, data={"num_samples": 4_000})
    for rank in range(2):
        with gzip.open(run_dir / "profile" / f"rank_{rank}.json.gz", "rt") as file:
            events = json.load(file)["traceEvents"]
        counts = dict.fromkeys(Stage, 0)
        for event in events:
            if event.get("ph") == "X" and event["name"] in counts:
                counts[Stage(event["name"])] += 1
                assert event["dur"] >= 0
        assert min(counts.values()) >= 2, counts
        assert counts[Stage.DATA_WAIT] == counts[Stage.BACKWARD] == counts[Stage.OPTIMIZER] == 2
        assert next(event["args"]["name"] for event in events if event["name"] == "process_name") == f"rank {rank}"
    rates = [float(row["lr-SGD/sparse"]) for row in _logged(run_dir) if row["lr-SGD/sparse"]]
    assert rates[:4] == [0.1, 0.1, 0.05, 0.05]


def test_a_run_that_trains_nothing_fails(worker_pool: WorkerPool, tmp_path: Path) -> None:
    optim = {"sparse": {"name": "sgd", "lr": 0.0}, "dense": {"name": "sgd", "lr": 0.1}}
    with pytest.raises(NotTrainedError) as error:
        _run(worker_pool, tmp_path / "run", callbacks={"assert_trained": True}, optim=optim)
    assert str(error.value).startswith(
        "callbacks.assert_trained: after 16 steps table 'sparse_0', table 'sparse_1', table 'sparse_2', "
        "table 'sparse_3', table 'sparse_4' and 3 more did not move"
    )
    assert str(error.value).endswith(
        "; raise optim.sparse.lr and optim.dense.lr, train for longer, or leave callbacks.assert_trained out"
    )
