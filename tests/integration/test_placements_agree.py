"""The same seed, data and global batch give the same model for every placement, world size and backend."""

from pathlib import Path
from typing import Any

import pytest

from integration.run_parent import prepare, train
from worker_pool import WorkerPool

MIX = {
    "sparse_0": {"type": "row_wise"},
    "sparse_1": {"type": "column_wise"},
    "sparse_2": {"type": "data_parallel"},
    "sparse_5": {"type": "row_wise"},
    "sparse_7": {"type": "column_wise"},
}
SHARDINGS: dict[str, dict[str, Any]] = {
    **{name: {"type": name} for name in ("table_wise", "row_wise", "column_wise", "data_parallel", "auto")},
    "mix": {"type": "table_wise", "tables": MIX},
}
CHANGES: dict[str, dict[str, Any]] = {
    # 12,700 samples: 50 steps are one whole epoch, and its last global batch is smaller than the others.
    "data": {"num_samples": 12_700, "val_samples": 1_000, "global_batch_size": 255},
    "trainer": {"max_steps": 50, "progress_bar": False},
}


# Every sharding on every backend, and each world size with some; the property test mixes them at random.
RUNS: dict[tuple[int, str], tuple[str, ...]] = {
    (1, "reference"): ("table_wise",),
    (2, "auto"): tuple(SHARDINGS),
    (3, "reference"): tuple(SHARDINGS),
    (4, "auto"): ("mix", "auto"),
}


@pytest.mark.parametrize(
    "optimizer", [{"name": "sgd", "lr": 0.5}, {"name": "rowwise_adagrad", "lr": 0.02}], ids=["sgd", "rowwise_adagrad"]
)
def test_every_placement_world_size_and_backend_trains_the_same_model(
    worker_pool: WorkerPool, tmp_path: Path, optimizer: dict[str, Any]
) -> None:
    found: dict[str, float] = {}
    for (world_size, backend), names in RUNS.items():
        for name in names:
            run_dir = tmp_path / f"{name}-{backend}-{world_size}"
            run_dir.mkdir()
            config = prepare(
                run_dir,
                world_size,
                sharding=SHARDINGS[name],
                ops={"backend": backend},
                optim={"sparse": optimizer, "dense": {"name": "adam", "lr": 0.001}},
                **CHANGES,
            )
            summary = worker_pool.run(world_size, train, config, run_dir, timeout_s=120)[0]
            assert summary["steps"] == 50
            found[f"{name} on {backend}, W={world_size}"] = summary["val"]["log_loss"]
    reference = found["table_wise on reference, W=1"]
    assert len(found) == 15
    far = {run: loss for run, loss in found.items() if abs(loss - reference) > 1e-5}
    assert not far, f"table_wise on one rank: {reference}; {far}"
