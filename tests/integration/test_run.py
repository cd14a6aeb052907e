"""The worker's side of a run, on the ranks of the test's pool."""

import json
from pathlib import Path
from typing import Any

import pytest

from integration.run_parent import prepare, train
from neo.errors import DataError, DivergedError
from worker_pool import WorkerPool


@pytest.mark.parametrize("model", ["dlrm", "dlrm_dcnv2"])
def test_a_run_leaves_logs_and_summary(worker_pool: WorkerPool, tmp_path: Path, model: str) -> None:
    config = prepare(tmp_path, 2, model={"name": model})
    first, second = worker_pool.run(2, train, config, tmp_path, timeout_s=120)
    assert second is None
    assert json.loads((tmp_path / "summary.json").read_text()) == first
    assert (first["status"], first["world_size"], first["steps"], first["samples"]) == ("done", 2, 16, 4_000)
    assert first["samples_per_s"] > 0
    assert first["val"]["samples"] == 1_000
    assert 0.5 < first["data"]["attainable_auc"] < 1
    assert first["executed_on"] == "2 CPU processes (gloo)"
    header, *lines = (tmp_path / "logs" / "metrics.csv").read_text().splitlines()
    assert {"train/loss", "train/samples_per_s", "lr/dense", "lr/sparse", "val/auc"} <= set(header.split(","))
    assert len(lines) == 4 + 2
    assert list((tmp_path / "tensorboard").glob("events*"))
    assert json.loads((tmp_path / "progress.json").read_text())["val"] == first["val"]


def test_results_do_not_depend_on_the_world_size(worker_pool: WorkerPool, tmp_path: Path) -> None:
    losses = []
    for world_size, sharding in ((1, "table_wise"), (2, "row_wise"), (3, "column_wise")):
        run_dir = tmp_path / str(world_size)
        run_dir.mkdir()
        config = prepare(run_dir, world_size, sharding={"type": sharding}, trainer={"max_steps": 11})
        summary = worker_pool.run(world_size, train, config, run_dir, timeout_s=120)[0]
        assert summary["steps"] == 11
        losses.append((summary["train_loss"], summary["val"]["log_loss"], summary["val"]["auc"]))
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)
    assert losses[2] == pytest.approx(losses[0], abs=1e-5)


def test_without_validation_data_there_is_no_val(worker_pool: WorkerPool, tmp_path: Path) -> None:
    config = prepare(tmp_path, 1, data={"val_samples": 0}, trainer={"max_steps": 3, "progress_bar": False})
    summary = worker_pool.run(1, train, config, tmp_path, timeout_s=120)[0]
    assert summary["val"] is None
    assert summary["data"] == {"out_of_range": {}}
    assert summary["train_loss"] > 0


def test_a_bad_label_on_one_rank_ends_the_run_with_our_error(worker_pool: WorkerPool, tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    lines = [f"{number % 2},{number}.5,{number % 7}" for number in range(40)]
    lines[15] = "2,1.5,3"  # the second batch, the second rank
    path.write_text("\n".join(["label,price,item", *lines]) + "\n")
    data: dict[str, Any] = {
        "name": "csv",
        "path": str(path),
        "label": "label",
        "dense": ["price"],
        "categorical": ["item"],
        "encoding": "hash",
        "dense_transform": "none",  # nothing is learned, so that nobody reads the file before the ranks do
    }
    data |= {"global_batch_size": 8, "shuffle": False, "num_samples": None, "val_samples": None}
    config = prepare(tmp_path, 2, data=data)
    with pytest.raises(DataError, match=r"column 'label': label 2\.0 is outside \[0, 1\] \(batch 1, sample 7\)"):
        worker_pool.run(2, train, config, tmp_path, timeout_s=20)  # the other rank waits in vain until then


def test_a_diverged_training_ends_at_the_step_that_shows_it(worker_pool: WorkerPool, tmp_path: Path) -> None:
    trainer = {"log_every_n_steps": 1000, "max_epochs": 1}
    config = prepare(tmp_path, 2, optim={"dense": {"name": "sgd", "lr": 1e30}}, trainer=trainer)
    with pytest.raises(
        DivergedError,
        match=r"^the training loss of step 2 is not finite on rank [01]: stage dense forward: every input, "
        r"table and parameter is finite, so the dense part has computed a number beyond its type; "
        r"lower optim.sparse.lr or optim.dense.lr",
    ):
        worker_pool.run(2, train, config, tmp_path, timeout_s=60)
    assert not (tmp_path / "summary.json").exists()


def test_a_missing_schema_is_an_error_of_ours(worker_pool: WorkerPool, tmp_path: Path) -> None:
    config = prepare(tmp_path, 2)
    (tmp_path / "data_schema" / "schema.json").unlink()
    with pytest.raises(DataError, match="data_schema"):
        worker_pool.run(2, train, config, tmp_path)
