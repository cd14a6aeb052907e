"""Nested placements on emulated nodes: 50 steps on 4 ranks, 2 to a node, have the losses of ``table_wise``."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration.run_parent import prepare, train
from worker_pool import WorkerPool

ROOT = Path(__file__).parents[2]
NESTED = ("table_row_wise", "table_column_wise", "grid")
STEPS = 50
CHANGES: dict[str, dict[str, Any]] = {
    "hardware": {"accelerators_per_node": 2},
    # 12,700 samples: 50 steps are one whole epoch, and its last global batch is smaller than the others.
    "data": {"num_samples": 12_700, "val_samples": 1_000, "global_batch_size": 255},
    "trainer": {"devices": 4, "max_steps": STEPS, "progress_bar": False, "log_every_n_steps": 1},
}
# Each placement takes its sums in another order: 7e-8 was the most seen with this seed. (With seed 3 a run comes so
# near a kink of the model at step 32 that rounding alone decides the side, of flat row_wise tables as well.)
CLOSE = 2e-6
SEED = 0
COMMAND = (
    "trainer.devices=4",
    "hardware.accelerators_per_node=2",
    "trainer.accelerator=cpu",
    f"trainer.max_steps={STEPS}",
    "trainer.log_every_n_steps=1",
    "model.num_embeddings=[50,60,70]",
    "data.num_samples=13000",
    "data.val_samples=400",
    "data.global_batch_size=256",
    "optim.sparse.lr=0.1",
)


def losses(run_dir: Path) -> list[float]:
    """Return the loss of every step's global batch."""
    with (run_dir / "logs" / "metrics.csv").open() as lines:
        found = [float(row["train/loss"]) for row in csv.DictReader(lines) if row["train/loss"]]
    assert len(found) == STEPS
    return found


def trained(
    pool: WorkerPool, tmp_path: Path, name: str, sharding: dict[str, Any], **changes: Any
) -> tuple[list[float], dict[str, Any]]:
    run_dir = tmp_path / name
    run_dir.mkdir()
    config = prepare(run_dir, 4, seed=SEED, sharding=sharding, **(CHANGES | changes))
    summary = pool.run(4, train, config, run_dir, timeout_s=120)[0]
    assert json.loads((run_dir / "plan.json").read_text())["local_world_size"] == 2
    return losses(run_dir), summary


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_every_nested_placement_has_the_losses_of_table_wise(
    worker_pool: WorkerPool, tmp_path: Path, optimizer: str
) -> None:
    same = {"optim": {"sparse": {"name": optimizer, "lr": 0.1}, "dense": {"name": "sgd", "lr": 0.1}}}
    expected, _ = trained(worker_pool, tmp_path, "table_wise", {"type": "table_wise"}, **same)
    kinds = ("table_row_wise", "table_column_wise", "grid", "row_wise", "column_wise", "data_parallel")
    mix = {f"sparse_{index}": {"type": kind} for index, kind in enumerate(kinds)}
    shardings: dict[str, dict[str, Any]] = {kind: {"type": kind} for kind in NESTED}
    shardings["mix"] = {"type": "table_wise", "tables": mix}
    for name, sharding in shardings.items():
        found, summary = trained(worker_pool, tmp_path, name, sharding, **same)
        assert summary["column_wise_semantics"] is None
        furthest = max(abs(own - other) for own, other in zip(found, expected, strict=True))
        assert furthest <= CLOSE, f"{name}: {furthest}"


def test_hyper_parameters_of_one_table_are_its_own_under_every_plan(worker_pool: WorkerPool, tmp_path: Path) -> None:
    dense = {"name": "sgd", "lr": 0.1}
    sparse = {"name": "rowwise_adagrad", "lr": 0.1}
    own = sparse | {"tables": {"sparse_0": {"lr": 0.01}, "sparse_2": {"initial_accumulator": 0.5}}}
    plain, _ = trained(worker_pool, tmp_path, "plain", {"type": "auto"}, optim={"sparse": sparse, "dense": dense})
    changed = {"optim": {"sparse": own, "dense": dense}}
    whole, _ = trained(worker_pool, tmp_path, "whole", {"type": "table_wise"}, **changed)
    grid, _ = trained(worker_pool, tmp_path, "grid", {"type": "grid"}, **changed)
    assert max(abs(a - b) for a, b in zip(grid, whole, strict=True)) <= CLOSE
    assert max(abs(a - b) for a, b in zip(plain, whole, strict=True)) > 100 * CLOSE


def test_per_shard_state_trains_differently_and_is_named(worker_pool: WorkerPool, tmp_path: Path) -> None:
    same = {"optim": {"sparse": {"name": "rowwise_adagrad", "lr": 0.1}, "dense": {"name": "sgd", "lr": 0.1}}}
    expected, _ = trained(worker_pool, tmp_path, "table_wise", {"type": "table_wise"}, **same)
    sharding = {"type": "grid", "column_wise_semantics": "per_shard"}
    found, summary = trained(worker_pool, tmp_path, "per_shard", sharding, **same)
    assert summary["column_wise_semantics"] == "per_shard"
    assert max(abs(own - other) for own, other in zip(found, expected, strict=True)) > 100 * CLOSE
    planned = {"type": "file", "path": str(tmp_path / "per_shard" / "plan.json")}
    again, summary = trained(worker_pool, tmp_path, "again", planned, **same)
    assert summary["column_wise_semantics"] == "per_shard"
    assert again == found


def test_the_bytes_between_nodes_are_in_the_summary(worker_pool: WorkerPool, tmp_path: Path) -> None:
    sent = {}
    for exchange in ("flat", "hierarchical"):
        _, summary = trained(worker_pool, tmp_path, exchange, {"type": "row_wise"}, comms={"exchange": exchange})
        sent[exchange] = summary["traffic_bytes_per_step"]
        assert set(sent[exchange]) == {"within_nodes", "between_nodes", "all_reduced"}
        assert sent[exchange]["all_reduced"] == 0
    assert 0 < sent["hierarchical"]["between_nodes"] < 0.75 * sent["flat"]["between_nodes"]
    assert sent["flat"]["within_nodes"] > 0


@pytest.mark.slow
def test_the_command_trains_a_grid_on_emulated_nodes(tmp_path: Path) -> None:
    run_dir = tmp_path / "grid"
    done = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *COMMAND, "sharding=grid", f"hydra.run.dir={run_dir}"],
        cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(losses(run_dir)) == STEPS
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["traffic_bytes_per_step"]["between_nodes"] > 0
    plan = json.loads((run_dir / "plan.json").read_text())
    assert (plan["world_size"], plan["local_world_size"]) == (4, 2)
    assert {table["sharding_type"] for table in plan["tables"].values()} == {"grid"}
