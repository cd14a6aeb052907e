"""``neo checkpoint show``, and the arguments of the commands that use a checkpoint; nothing is started."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from neo.checkpoint.folder import file_entry
from neo.checkpoint.manifest import Facts, Manifest, TableEntry, write_manifest
from neo.cli.main import main
from neo.plan.serialize import write_plan
from neo.plan.sharding_plan import Shard, ShardingPlan, ShardingType, TablePlan

KEY = "model.embeddings.items"
ENTRY = TableEntry(
    key=KEY,
    num_embeddings=1_000_000,
    embedding_dim=16,
    weights_dtype="fp16",
    optimizer="rowwise_adagrad",
    states={"momentum": True},
    pooling="mean",
    weighted=True,
    feature_names=("items",),
    column_ranges=((0, 16),),
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A complete checkpoint of one table, without its tables' files."""
    path = tmp_path / "run" / "checkpoints" / "step_000040"
    path.mkdir(parents=True)
    shards = tuple(Shard(rank, 500_000 * rank, 500_000 * (rank + 1), 0, 16) for rank in range(2))
    plan = ShardingPlan(2, 2, {KEY: TablePlan(ShardingType.ROW_WISE, shards, kernel="reference")})
    write_plan(path / "plan.json", plan, "abc")
    facts = Facts(40, epoch=1, samples=81_920, plan_fingerprint="abc", val={"auc": 0.78125, "log_loss": None})
    files = {"plan.json": file_entry(path / "plan.json")}
    write_manifest(
        path, Manifest(facts, 2, (ENTRY, replace(ENTRY, key="other", weighted=False)), files, {"torch": "9"})
    )
    return path


def test_show_lists_what_a_checkpoint_holds(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", "show", str(saved.parents[1])]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == str(saved)
    assert lines[1].startswith("1 files, ")
    assert lines[2:] == [
        "step 40",
        "epoch 1",
        "samples seen 81.9 k",
        "written by 2 ranks",
        "validation auc 0.78125",
        "plan 2 ranks, 2 a node, abc",
        "data -",
        "versions torch 9",
        "table rows columns type bytes pooling optimizer states sharding",
        "items 1,000,000 16 fp16 30.5 MiB mean, weighted rowwise_adagrad momentum per row row_wise",
        "other 1,000,000 16 fp16 30.5 MiB mean rowwise_adagrad momentum per row -",
    ]


def test_show_verifies_on_request(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = saved / "plan.json"
    plan.write_bytes(plan.read_bytes()[:-2] + b"X\n")
    assert main(["checkpoint", "show", str(saved)]) == 0
    assert main(["checkpoint", "show", str(saved), "--verify"]) == 1
    assert capsys.readouterr().err == (
        f"'{saved}' is damaged: the content of plan.json has changed; take another checkpoint\n"
    )


def test_show_imports_no_torch(saved: Path) -> None:
    code = (
        "import sys; from neo.cli.main import main; "
        f"assert main(['checkpoint', 'show', {str(saved)!r}]) == 0; assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command", [["checkpoint", "show"], ["eval"], ["predict", "--out", "x"], ["export", "--out", "x"]]
)
def test_without_a_checkpoint_nothing_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*command, "gone"]) == 1
    assert capsys.readouterr().err == ("'gone' does not exist; name a checkpoint, a folder of them, or a run folder\n")
    assert main([*command, str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"'{tmp_path}' holds no complete checkpoint\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["eval", "predict", "export"])
def test_a_checkpoint_of_ones_own_module_is_not_for_these_commands(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([command, str(saved), "--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == (
        f"'{saved}' does not keep how samples are encoded (data_schema); neo train keeps it; a module of your own is "
        "evaluated with Trainer.validate(..., ckpt_path=...)\n"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["eval"], "neo eval: the following arguments are required: path, key=value; usage: neo eval"),
        (["eval", "x", "--oot", "y"], "neo eval: unrecognized arguments: --oot y; usage: neo eval"),
        (["predict", "x"], "neo predict: the following arguments are required: --out; usage: neo predict"),
        (["predict", "x", "--out", "."], "--out: '.' is a folder; name a file, like scores.parquet"),
        (["export", "x", "--out", "/"], "--out: '/' is there already; name another folder, or remove it"),
        (["export", "x", "--out", "y", "--samples", "-1"], "--samples: -1 is below the limit 0"),
        (["export", "x", "--out", "y", "seed=1"], "seed: has no effect on the model; add --samples COUNT"),
        (["export", "x", "--out", "y", "--dtype", "fp8"], "neo export: argument --dtype: invalid choice: 'fp8'"),
        (["checkpoint", "shaw", "x"], "neo checkpoint: argument ACTION: invalid choice: 'shaw'"),
    ],
)  # fmt: skip
def test_wrong_arguments(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    head, found = capsys.readouterr().err.splitlines()[:2]
    assert head == "1 mistake in the configuration:"
    assert found.startswith(f"  {line}")


def test_other_starters_are_refused(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "1", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert main(["eval", str(saved)]) == 2
    assert capsys.readouterr().err.splitlines()[1] == (
        "  neo: starts its own workers, and torchrun has started these already; run it once, by itself"
    )
