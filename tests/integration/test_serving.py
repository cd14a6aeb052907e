"""A trained model leaves: measured, scored and exported as its run measured it, on any number of ranks."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import neo.cli.serving
from neo.cli.main import main
from neo.launch.job_worker import work
from neo.launch.process import Outcome
from saved_run import saved_run
from worker_pool import WorkerPool

DOCS = Path(__file__).parents[2] / "docs" / "serving.md"
NUM_VAL = 700


@dataclass(frozen=True)
class Saved:
    """A checkpoint, the metrics of its run's validation, and the folder of everything."""

    checkpoint: Path
    val: dict[str, Any]
    folder: Path


def write_clicks(path: Path, num_samples: int, seed: int, *, labelled: bool = True) -> None:
    """Write samples with everything that a table can meet: texts, nulls, empty lists, weights."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 4, num_samples)
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    num_ids = int(lengths.sum())
    price = random.normal(size=num_samples)
    columns: dict[str, Any] = {
        "price": pa.array(price, mask=random.random(num_samples) < 0.1),
        "city": pa.array([f"city {n}" for n in random.integers(0, 40, num_samples)]),
        "items": pa.ListArray.from_arrays(ends, pa.array(random.integers(0, 60, num_ids))),
        "strength": pa.ListArray.from_arrays(ends, pa.array(random.random(num_ids) * 2 - 0.5)),
        "tags": pa.ListArray.from_arrays(ends, pa.array(random.integers(0, 30, num_ids))),
    }
    if labelled:
        columns["click"] = pa.array((price + random.normal(size=num_samples) > 0).astype(np.int64))
    pq.write_table(pa.table(columns), path, row_group_size=150)


def clicks(folder: Path, *, model: str, pooling: str, pool: WorkerPool) -> Saved:
    """Train on two ranks with every kind of placement."""
    for part, (count, seed) in enumerate([(1500, 0), (NUM_VAL, 1)]):
        write_clicks(folder / f"{part}.parquet", count, seed)
    data = {
        "name": "parquet",
        "path": str(folder / "0.parquet"),
        "val_path": str(folder / "1.parquet"),
        "label": "click",
        "dense": ["price"],
        "categorical": ["city"],
        "lists": ["items", "tags"],
        "list_weights": ["strength", None],
        "global_batch_size": 128,
        "num_samples": None,
        "val_samples": None,
    }
    sizes = {"cross_rank": 8} if model == "dlrm_dcnv2" else {}
    sharding = {"tables": {"city": {"type": "row_wise"}, "items": {"type": "column_wise"}}}
    checkpoint, val = saved_run(
        pool,
        folder / "run",
        2,
        data=data,
        model={"name": model, "pooling": pooling, "embedding_dim": 8, **sizes},
        sharding=sharding,
    )
    return Saved(checkpoint, val, folder)


@pytest.fixture
def in_pool(worker_pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the ranks of the test's pool be the workers that a command starts."""

    def run(run_dir: Path, *, num_processes: int, **others: Any) -> Outcome:
        worker_pool.run(num_processes, work, run_dir, timeout_s=60)
        return Outcome(True)

    monkeypatch.setattr(neo.cli.serving, "run_workers", run)


def neo_command(*arguments: object) -> None:
    assert main([str(argument) for argument in arguments]) == 0


def scores(path: Path) -> Any:
    table = pq.read_table(path)
    assert table.column("row").to_pylist() == list(range(table.num_rows))
    return table


def run_docs(kind: str, folder: Path) -> torch.Tensor:
    """Run the documented loader of a kind of model where neo cannot be imported, and return its logits."""
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    code = blocks[["dlrm", "dlrm_dcnv2"].index(kind)]
    lines = [line for line in code.splitlines() if line and "import" not in line]
    assert len(lines) <= 16
    code = f"import sys; sys.modules['neo'] = None\n{code}\ntorch.save(logits, sys.argv[1])"
    out = folder / "logits.pt"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(out)],
        cwd=folder, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    logits: torch.Tensor = torch.load(out)
    return logits


@pytest.mark.usefixtures("in_pool")
@pytest.mark.parametrize(("model", "pooling"), [("dlrm", "mean"), ("dlrm_dcnv2", "sum")])
def test_r3_a_checkpoint_is_measured_scored_and_exported_alike(
    worker_pool: WorkerPool, tmp_path: Path, model: str, pooling: str
) -> None:
    saved = clicks(tmp_path, model=model, pooling=pooling, pool=worker_pool)
    (tmp_path / "0.parquet").unlink()  # training samples are not needed any more

    neo_command("eval", tmp_path / "run", "--out", tmp_path / "eval")
    found = json.loads((tmp_path / "eval" / "eval.json").read_text())
    assert {key: found[key] for key in saved.val} == saved.val
    assert (found["step"], found["world_size"], found["samples"]) == (10, 2, NUM_VAL)
    assert found["data"] == {"name": "parquet", "val_path": str(tmp_path / "1.parquet")}

    neo_command("predict", saved.checkpoint, "--out", tmp_path / "2.parquet")
    neo_command("predict", saved.checkpoint, "--out", tmp_path / "3.parquet", "trainer.devices=1", "sharding=grid",
                "data.global_batch_size=100")  # fmt: skip
    two, one = scores(tmp_path / "2.parquet"), scores(tmp_path / "3.parquet")
    logits = two.column("logit").to_numpy()
    assert two.num_rows == NUM_VAL
    np.testing.assert_allclose(one.column("logit").to_numpy(), logits, rtol=0, atol=1e-6)
    np.testing.assert_allclose(two.column("probability").to_numpy(), 1 / (1 + np.exp(-logits)), rtol=1e-6)
    labels = pq.read_table(tmp_path / "1.parquet").column("click").to_numpy()
    log_loss = np.mean(np.logaddexp(0, logits.astype(np.float64)) - labels * logits)
    assert log_loss == pytest.approx(saved.val["log_loss"], abs=1e-6)

    neo_command("export", saved.checkpoint, "--out", tmp_path / "model", "--samples", "600")
    np.testing.assert_allclose(run_docs(model, tmp_path / "model").numpy(), logits[:600], rtol=0, atol=1e-6)
