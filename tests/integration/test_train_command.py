"""``train.py`` from the command to ``summary.json``: its own workers, torchrun, Slurm (R35)."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SMALL = (
    "model.num_embeddings=[50,60]",
    "data.num_samples=2000",
    "data.val_samples=400",
    "data.global_batch_size=100",
    "trainer.max_steps=5",
    "trainer.accelerator=cpu",
)


def _environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **extra}


def _summary(run_dir: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run_dir / "summary.json").read_text())
    return content


def _assert_done(run_dir: Path) -> None:
    summary = _summary(run_dir)
    assert summary["status"] == "done"
    assert (summary["world_size"], summary["steps"], summary["samples"]) == (2, 5, 500)
    assert summary["planned_for"] == "2 ZionEX accelerators"
    assert summary["executed_on"] == "2 CPU processes (gloo)"
    assert summary["plan_fingerprint"]
    assert summary["config_fingerprint"]
    assert (run_dir / "resolved.yaml").is_file()
    assert (run_dir / "plan.json").is_file()


def _folders(base: Path) -> list[Path]:
    return sorted(path.parent for path in base.rglob("summary.json"))


def test_train_starts_its_workers_and_ends_with_a_summary(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *SMALL],
        cwd=tmp_path, env=_environment(), capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("planned for: 2 ZionEX accelerators; executed on: 2 CPU processes (gloo)\n")
    assert len(_folders(tmp_path)) == 1
    run_dir = _folders(tmp_path)[0]
    assert not set("=,{} ") & set(str(run_dir.relative_to(tmp_path)))
    _assert_done(run_dir)
    assert not (run_dir / "errors").exists()


def test_an_infeasible_run_exits_3_and_says_so_in_its_summary(tmp_path: Path) -> None:
    huge = ["model.num_embeddings=[100000000,100000000]", "model.embedding_dim=2048", "data.num_samples=2000"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *huge, f"hydra.run.dir={tmp_path}"],
        cwd=tmp_path, env=_environment(), capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert _summary(tmp_path)["status"] == "infeasible"
    assert "sparse_" in _summary(tmp_path)["error"]


def test_r35_torchrun_ranks_share_one_folder_and_one_config(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d",
         "--rdzv-endpoint", "localhost:0", "--rdzv-id", "night run 7", str(ROOT / "train.py"), *SMALL],
        cwd=tmp_path, env=_environment(), capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert _folders(tmp_path) == [tmp_path / "outputs" / "torchrun-night-run-7"]
    _assert_done(_folders(tmp_path)[0])
    assert done.stdout.count("planned for:") == 1


def _slurm(rank: int, cwd: Path, overrides: tuple[str, ...], **extra: str) -> "subprocess.Popen[str]":
    job = {
        "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_TASKS_PER_NODE": "2",
        "SLURM_JOB_NODELIST": "localhost", "SLURM_NODEID": "0",
        "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "MASTER_PORT": extra.pop("port"),
    }  # fmt: skip
    command = [sys.executable, str(ROOT / "train.py"), *overrides]
    return subprocess.Popen(
        command, cwd=cwd, env=_environment(**job, **extra), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _ended(processes: Mapping[int, "subprocess.Popen[str]"]) -> dict[int, tuple[int, str, str]]:
    ends = {}
    for rank, process in processes.items():
        out, err = process.communicate(timeout=240)
        ends[rank] = (process.returncode, out, err)
    return ends


def test_r35_slurm_ranks_share_one_folder_whatever_their_clocks_say(tmp_path: Path) -> None:
    port = str(20000 + os.getpid() % 20000)
    zones = {0: "UTC", 1: "Pacific/Auckland"}
    ends = _ended({rank: _slurm(rank, tmp_path, SMALL, port=port, TZ=zone) for rank, zone in zones.items()})
    assert ends[0][0] == 0, ends[0][2]
    assert ends[1][:2] == (0, ""), ends[1][2]
    assert _folders(tmp_path) == [tmp_path / "outputs" / "slurm-4711"]
    _assert_done(_folders(tmp_path)[0])


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (
            ("trainer.devices=3",),
            "  trainer.devices: 3 on 1 node, but srun started 2; leave it out: the number of started processes counts",
        ),
        (
            ("-m", "seed=1,2"),
            "  -m: a sweep starts its own workers, and srun has started these already; "
            "run the sweep without it, or one point per job",
        ),
    ],
)
def test_a_job_of_ranks_that_is_wrong_ends_on_all_of_them(
    tmp_path: Path, overrides: tuple[str, ...], line: str
) -> None:
    ends = _ended({rank: _slurm(rank, tmp_path, overrides, port="20001") for rank in range(2)})
    assert [ends[rank][0] for rank in range(2)] == [2, 2]
    assert ends[0][2].splitlines() == ["1 mistake in the configuration:", line]
    assert ends[1][1:] == ("", "")


def test_several_nodes_need_a_launcher(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), "trainer.num_nodes=2"],
        cwd=tmp_path, env=_environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "  trainer.num_nodes: 2 nodes, but workers are started on this host only; "
        "start this command on every node with torchrun or srun"
    )
