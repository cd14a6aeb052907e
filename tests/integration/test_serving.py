"""A trained model leaves: measured, scored and exported as its run measured it, on any number of ranks."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

import neo.cli.serving
from neo.cli.main import main
from neo.launch.job_worker import work
from neo.launch.process import Outcome
from saved_run import saved_run
from worker_pool import WorkerPool

Train = Callable[[str, str], "Saved"]
DOCS = Path(__file__).parents[2] / "docs" / "serving.md"
NUM_VAL = 700


@dataclass(frozen=True)
class Saved:
    """A checkpoint, the metrics of its run's validation, and the folder of everything."""

    checkpoint: Path
    val: dict[str, Any]
    folder: Path

    @property
    def val_path(self) -> Path:
        """The validation samples."""
        return self.folder / "1.parquet"


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


@pytest.fixture(scope="module")
def train(worker_pool: WorkerPool, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Return a function that trains a model once for all tests."""
    saved: dict[tuple[str, str], Saved] = {}

    def run(model: str, pooling: str) -> Saved:
        if (model, pooling) not in saved:
            folder = tmp_path_factory.mktemp(model)
            saved[model, pooling] = clicks(folder, model=model, pooling=pooling, pool=worker_pool)
            (folder / "0.parquet").unlink()  # training samples are not needed any more
        return saved[model, pooling]

    return run


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
    code = blocks[["dlrm", "dlrm_dcnv2", "deepfm"].index(kind)]
    lines = [line for line in code.splitlines() if line and "import" not in line]
    assert len(lines) <= 17
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
@pytest.mark.parametrize(("model", "pooling"), [("dlrm", "mean"), ("dlrm_dcnv2", "sum"), ("deepfm", "mean")])
def test_r3_a_checkpoint_is_measured_scored_and_exported_alike(
    train: Train, tmp_path: Path, model: str, pooling: str
) -> None:
    saved = train(model, pooling)
    neo_command("eval", saved.folder / "run", "--out", tmp_path / "eval")
    found = json.loads((tmp_path / "eval" / "eval.json").read_text())
    assert {key: found[key] for key in saved.val} == saved.val
    assert (found["step"], found["world_size"], found["samples"]) == (10, 2, NUM_VAL)
    assert found["data"] == {"name": "parquet", "val_path": str(saved.val_path)}

    neo_command("predict", saved.checkpoint, "--out", tmp_path / "2.parquet")
    neo_command("predict", saved.checkpoint, "--out", tmp_path / "3.parquet", "trainer.devices=1", "sharding=grid",
                "data.global_batch_size=100")  # fmt: skip
    two, one = scores(tmp_path / "2.parquet"), scores(tmp_path / "3.parquet")
    logits = two.column("logit").to_numpy()
    assert two.num_rows == NUM_VAL
    np.testing.assert_allclose(one.column("logit").to_numpy(), logits, rtol=0, atol=1e-6)
    np.testing.assert_allclose(two.column("probability").to_numpy(), 1 / (1 + np.exp(-logits)), rtol=1e-6)
    labels = pq.read_table(saved.val_path).column("click").to_numpy()
    log_loss = np.mean(np.logaddexp(0, logits.astype(np.float64)) - labels * logits)
    assert log_loss == pytest.approx(saved.val["log_loss"], abs=1e-6)

    neo_command("export", saved.checkpoint, "--out", tmp_path / "model", "--samples", "600")
    np.testing.assert_allclose(run_docs(model, tmp_path / "model").numpy(), logits[:600], rtol=0, atol=1e-6)


@pytest.mark.usefixtures("in_pool")
def test_another_data_set_of_several_files_without_labels_is_scored(train: Train, tmp_path: Path) -> None:
    saved, folder = train("dlrm", "mean"), tmp_path / "new"
    folder.mkdir()
    table = pq.read_table(saved.val_path)
    pq.write_table(table.slice(0, 300).drop(["click"]), folder / "a.parquet")
    pq.write_table(table.slice(300).drop(["click"]), folder / "b.parquet")
    neo_command("predict", saved.checkpoint, "--out", tmp_path / "known.parquet")
    neo_command("predict", saved.checkpoint, "--out", tmp_path / "new.parquet", f"data.val_path={folder}",
                "trainer.devices=3", "data.limit_samples=500")  # fmt: skip
    found = scores(tmp_path / "new.parquet")
    known = scores(tmp_path / "known.parquet").column("logit").to_numpy()
    np.testing.assert_allclose(found.column("logit").to_numpy(), known[:500], rtol=0, atol=1e-6)
    assert found.column("file").to_pylist() == [str(folder / "a.parquet")] * 300 + [str(folder / "b.parquet")] * 200
    assert found.column("file_row").to_pylist() == [*range(300), *range(200)]
    assert main(["eval", str(saved.checkpoint), f"data.val_path={folder}"]) == 2


@pytest.mark.usefixtures("in_pool")
def test_the_card_says_how_samples_are_encoded(train: Train, tmp_path: Path) -> None:
    saved = train("dlrm", "mean")
    neo_command("export", saved.checkpoint, "--out", tmp_path / "model", "--samples", NUM_VAL, "--dtype", "bf16")
    card = json.loads((tmp_path / "model" / "model.json").read_text())
    weights, samples = (load_file(tmp_path / "model" / f"{name}.safetensors") for name in ("model", "samples"))
    table = pq.read_table(saved.val_path)
    (price,) = card["dense"]["columns"]
    given = table.column("price").to_numpy()
    dense = np.where(np.isnan(given), 0.0, (given - price["mean"]) / price["deviation"])
    np.testing.assert_allclose(samples["dense"][:, 0].numpy(), dense, rtol=1e-6)

    values = samples["values"].split(samples["lengths"].sum(1).tolist())
    for feature, column, encoded in zip(card["features"], card["sparse"], values, strict=True):
        assert feature == column["name"]
        vocabulary = pq.read_table(tmp_path / "model" / column["vocabulary"])
        rows = dict(zip(*vocabulary.to_pydict().values(), strict=True))
        ids = table.column(feature).to_pylist()
        flat = ids if feature == "city" else [one for bag in ids for one in bag]
        assert encoded.tolist() == [rows.get(one, 1) for one in flat]
    assert {t["dtype"] for t in card["tables"]} == {"bf16"}
    assert weights["embeddings.city"].dtype is torch.bfloat16
    assert [t["weighted"] for t in card["tables"]] == [False, True, False]
    assert card["trained"]["step"] == 10
    assert "| city | " in (tmp_path / "model" / "README.md").read_text()


@pytest.mark.usefixtures("in_pool")
@pytest.mark.parametrize("command", ["eval", "predict", "export"])
def test_a_damaged_checkpoint_is_not_used_and_leaves_nothing(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    copy, out = tmp_path / "copy", tmp_path / "out"
    shutil.copytree(train("dlrm", "mean").checkpoint, copy)
    if command == "predict":
        out.write_text("scores of yesterday")
    before = sorted(tmp_path.iterdir())
    largest = max((copy / "tables").glob("*"), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(bytes(content))
    assert main([command, str(copy), "--out", str(out)]) == 1
    assert f"the content of tables/{largest.name} has changed; take another checkpoint" in capsys.readouterr().err
    if command == "eval":  # its folder has the logs of the workers
        assert not (out / "eval.json").exists()
    else:
        assert sorted(tmp_path.iterdir()) == before
    if command == "predict":
        assert out.read_text() == "scores of yesterday"


def test_a_command_starts_its_own_workers_and_ends_with_their_error(
    train: Train, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    saved, bad = train("dlrm", "mean"), tmp_path / "bad.parquet"
    table = pq.read_table(saved.val_path).drop(["click"])
    price = pa.array([*table.column("price").to_pylist()[:-1], float("inf")])
    pq.write_table(table.set_column(0, "price", price), bad)
    override = f"data.val_path={bad}"
    assert main(["predict", str(saved.checkpoint), "--out", str(tmp_path / "x"), override, "trainer.devices=1"]) == 1
    line = f"row {NUM_VAL - 1}: column 'price': inf is not finite"
    assert line in capfd.readouterr().err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["bad.parquet"]
