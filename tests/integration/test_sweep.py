"""Sweeps with real workers (R34)."""

import csv
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMALL = (
    "model.num_embeddings=[50,60]",
    "data.num_samples=5000",
    "data.val_samples=400",
    "data.global_batch_size=100",
    "trainer.max_steps=30",
    "trainer.accelerator=cpu",
)


def _rows(sweep_dir: Path) -> list[dict[str, str]]:
    with (sweep_dir / "sweep.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _left(sweep_dir: Path) -> list[str]:
    """Return the command lines of living processes that work on this sweep."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text())
        except OSError:
            continue
    return [line for line in found if str(sweep_dir) in line]


def test_r34_the_second_of_three_points_fails_at_run_time(tmp_path: Path) -> None:
    sweep_dir = tmp_path / "sweep"
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests" / "integration")])
    done = subprocess.run(
        [sys.executable, "-m", "sweep_parent", "seed=1,7,3", "trainer.devices=2", "launch.shutdown_timeout_s=5",
         *SMALL, f"hydra.sweep.dir={sweep_dir}"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    rows = _rows(sweep_dir)
    assert [row["status"] for row in rows] == ["done", "failed", "done"]
    assert rows[1]["error"] == "rank 1 failed: ValueError: table 'user_id' is on fire on rank 1"
    assert done.stdout.count("rank 0 sees 2 ranks") == 3
    for point, ended in enumerate(("done", "failed: rank 1 failed: ValueError", "done")):
        assert f"point {point} {ended}" in (sweep_dir / str(point) / "neo.log").read_text()
        assert (sweep_dir / str(point) / "resolved.yaml").is_file()
        assert "rank 1 sees 2 ranks" in (sweep_dir / str(point) / "logs" / "rank_1.out").read_text()
        assert not Path(f"/proc/{(sweep_dir / str(point) / 'pid_1').read_text()}").exists()
    assert _left(sweep_dir) == []


def test_a_sweep_of_one_training_and_one_that_does_not_fit(tmp_path: Path) -> None:
    tight = ("hardware.accelerator.hbm.capacity=60KiB", "hardware.node.ddr.capacity=0", "trainer.devices=1")
    done = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), "-m", "model.embedding_dim=16,2048", *tight, *SMALL,
         f"hydra.sweep.dir={tmp_path}"],
        cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    trained, infeasible = _rows(tmp_path)
    assert (trained["status"], infeasible["status"]) == ("done", "infeasible")
    assert 0.5 < float(trained["auc"]) < 1
    assert all(float(trained[name]) > 0 for name in ("ne", "log_loss", "train_loss", "samples_per_s", "step_time_s"))
    assert trained["steps"] == "30"
    assert len(list(tmp_path.glob("[0-9]/summary.json"))) == 2
    assert not (tmp_path / "summary.json").exists()
