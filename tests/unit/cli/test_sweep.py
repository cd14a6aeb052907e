"""Whole sweeps in this process: all but the workers is real."""

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra

from neo.cli.main import main
from neo.cli.sweep import exit_code
from neo.cli.sweep_config import SweepConfiguration
from neo.cli.sweep_rows import Row, RowStatus
from neo.data.vocabulary import learn_schema
from neo.launch.process import Outcome
from neo.launch.summary import SUMMARY

ROOT = Path(__file__).parents[3]
HERE = ("hydra/job_logging=none", "hydra/hydra_logging=none", "trainer.accelerator=cpu")
SMALL = (*HERE, "model.num_embeddings=[50,60]", "data.num_samples=2000")
MEASURED = {
    "steps": 5,
    "samples_per_s": 1234.5,
    "step_time_s": {"median": 0.081, "p10": 0.08, "p90": 0.09},
    "train_loss": 0.6,
    "val": {"auc": 0.75, "ne": 0.9, "log_loss": 0.55, "accuracy": 0.8, "samples": 400},
}
Behaviour = Callable[[Path], Outcome]


def _done(run_dir: Path) -> Outcome:
    (run_dir / SUMMARY).write_text(json.dumps(MEASURED))
    return Outcome(True)


def _failed(run_dir: Path) -> Outcome:
    return Outcome(False, message="Traceback of it\n\nrank 1 failed: ValueError: table\non fire")


def _interrupted(run_dir: Path) -> Outcome:
    return Outcome(False, "SIGTERM", "ended by SIGTERM")


def _signalled(run_dir: Path) -> Outcome:
    signal.raise_signal(signal.SIGTERM)
    raise AssertionError("the signal has to end the run")


def _preempted(run_dir: Path) -> Outcome:
    (run_dir / SUMMARY).write_text(json.dumps({**MEASURED, "status": "preempted"}))
    return Outcome(True)


class Sweeps:
    """Runs ``neo train -m`` in a folder, with workers that do what they are told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[str] = []
        self.behaviours: dict[str, Behaviour] = {}

    def run_workers(self, run_dir: Path, **how: Any) -> Outcome:
        self.started.append(run_dir.name)
        return self.behaviours.get(run_dir.name, _done)(run_dir)

    def run(self, *overrides: str, command: str = "train", flags: tuple[str, ...] = ()) -> int:
        self.started.clear()
        return main([command, "-m", *flags, *overrides, *SMALL, f"hydra.sweep.dir={self.folder}"])

    def rows(self) -> list[dict[str, str]]:
        with (self.folder / "sweep.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    def statuses(self) -> list[str]:
        return [row["status"] for row in self.rows()]


@pytest.fixture
def sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sweeps]:
    made = Sweeps(tmp_path / "made" / "sweep")
    monkeypatch.setattr("neo.cli.train.run_workers", made.run_workers)
    yield made
    GlobalHydra.instance().clear()


def test_r34_an_invalid_second_point_and_nothing_starts(sweeps: Sweeps, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweeps.run("optim.sparse.lr=0.1,-1,0.3") == 2
    assert capsys.readouterr() == (
        "",
        "1 mistake in the configuration:\n"
        "  point 1 (optim.sparse.lr=-1): optim.sparse.lr: -1.0 is below the limit 0; write 0 or more\n",
    )
    assert sweeps.started == []
    assert not sweeps.folder.parent.exists()


def test_r34_points_after_a_failed_one_run_and_the_table_says_why(
    sweeps: Sweeps, capsys: pytest.CaptureFixture[str]
) -> None:
    sweeps.behaviours["1"] = _failed
    assert sweeps.run("optim.sparse.lr=0.1,0.2,0.3") == 1
    assert sweeps.started == ["0", "1", "2"]
    assert sweeps.rows()[:2] == [
        {
            "optim.sparse.lr": "0.1", "status": "done", "auc": "0.75", "ne": "0.9", "log_loss": "0.55",
            "train_loss": "0.6", "samples_per_s": "1234.5", "step_time_s": "0.081", "steps": "5", "folder": "0",
            "error": "",
        },
        {
            "optim.sparse.lr": "0.2", "status": "failed", "auc": "", "ne": "", "log_loss": "",
            "train_loss": "", "samples_per_s": "", "step_time_s": "", "steps": "", "folder": "1",
            "error": "rank 1 failed: ValueError: table on fire",
        },
    ]  # fmt: skip
    assert sweeps.statuses() == ["done", "failed", "done"]
    shown = capsys.readouterr()
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["0.1", "done", "0.75000", "0.90000", "0.55000", "0.60000", "1,234", "81", "ms", "5", "0"] in lines
    assert ["0.2", "failed", "1"] in lines
    assert "\npoint 1 failed: rank 1 failed: ValueError: table on fire\n" in shown.out
    assert shown.out.startswith("3 points are checked and planned\n")
    assert shown.out.endswith(f"sweep folder: {sweeps.folder} (sweep.csv, sweep.html)\n")
    assert "rank 1 failed" in (sweeps.folder / "sweep.html").read_text()
    assert not (sweeps.folder / SUMMARY).exists()


def test_on_failure_stop(sweeps: Sweeps) -> None:
    earlier = sweeps.folder / "1" / SUMMARY
    earlier.parent.mkdir(parents=True)
    earlier.write_text(json.dumps({**MEASURED, "status": "done"}))
    sweeps.behaviours["0"] = _failed
    assert sweeps.run("seed=1,2", "sweep.on_failure=stop") == 1
    assert sweeps.started == ["0"]
    assert sweeps.statuses() == ["failed", "not started"]
    assert sweeps.rows()[1]["error"] == "point 0 failed, and sweep.on_failure=stop"
    assert not earlier.exists()  # What an earlier sweep left is not taken for a result.


def test_r34_an_infeasible_point_is_a_row(sweeps: Sweeps) -> None:
    huge = ("hardware.accelerator.hbm.capacity=60KiB", "hardware.node.ddr.capacity=0")
    assert sweeps.run("model.embedding_dim=2048,16", *huge, "sweep.on_failure=stop") == 0
    assert sweeps.started == ["1"]
    assert sweeps.statuses() == ["infeasible", "done"]
    assert "hardware.accelerator.hbm.capacity" in sweeps.rows()[0]["error"]


@pytest.mark.parametrize(
    ("behaviour", "status", "error"),
    [
        (_interrupted, "interrupted", "ended by SIGTERM"),
        (_signalled, "interrupted", "ended by SIGTERM"),
        (_preempted, "preempted", ""),
    ],
)
def test_a_signal_ends_the_running_point_and_the_others_are_not_started(
    sweeps: Sweeps, behaviour: Behaviour, status: str, error: str
) -> None:
    sweeps.behaviours["0"] = behaviour
    before = signal.getsignal(signal.SIGTERM)
    assert sweeps.run("seed=1,2") == 1
    assert signal.getsignal(signal.SIGTERM) == before
    assert sweeps.started == ["0"]
    first, second = sweeps.rows()
    assert (first["status"], first["error"]) == (status, error)
    assert second["status"] == "not started"
    assert second["error"].startswith("the sweep was interrupted ")


def test_exit_codes() -> None:
    def code(*statuses: RowStatus) -> int:
        return exit_code([Row(0, (), status, Path()) for status in statuses])

    assert code(RowStatus.DONE, RowStatus.INFEASIBLE) == 0
    assert code(RowStatus.DONE, RowStatus.PREEMPTED) == 0  # A checkpoint holds what is left undone.
    assert code(RowStatus.PREEMPTED, RowStatus.NOT_STARTED) == 1
    assert [code(status) for status in (RowStatus.FAILED, RowStatus.INTERRUPTED, RowStatus.NOT_STARTED)] == [1, 1, 1]


def test_a_resumed_sweep_leaves_out_what_is_done(sweeps: Sweeps, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweeps.run("seed=1,2") == 0
    other = sweeps.folder / "1" / SUMMARY
    other.write_text(json.dumps({**json.loads(other.read_text()), "config_fingerprint": "of another configuration"}))
    capsys.readouterr()
    assert sweeps.run("seed=1,2", "sweep.resume=true") == 0
    assert sweeps.started == ["1"]
    assert sweeps.statuses() == ["done", "done"]
    assert "\n1 point is done already\n" in capsys.readouterr().out


def _data(tmp_path: Path, *colors: str) -> tuple[str, ...]:
    (tmp_path / "data.csv").write_text("label,color\n" + "".join(f"{i % 2},{c}\n" for i, c in enumerate(colors)))
    return "data=csv", f"data.path={tmp_path}/data.csv", "data.label=label", "data.categorical=[color]"


def test_points_with_the_same_data_learn_once(sweeps: Sweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int | None] = []

    def counted(data: Any, **others: Any) -> Any:
        limits.append(data.limit_samples)
        return learn_schema(data, **others)

    monkeypatch.setattr("neo.cli.shared_schema.learn_schema", counted)
    overrides = _data(tmp_path, "red", "blue", "red")
    sweep = ["seed=1,2", "data.limit_samples=2", f"hydra.sweep.dir={sweeps.folder}"]
    assert main(["train", "-m", *sweep, *overrides, *HERE]) == 0
    assert limits == [2]
    for point in range(2):
        schema = json.loads((sweeps.folder / str(point) / "data_schema" / "schema.json").read_text())
        assert schema["num_samples"] == 2
    assert sorted(path.name for path in sweeps.folder.iterdir() if path.name.startswith(".")) == [".neo.lock"]
    assert not (sweeps.folder / "0" / ".shared_schema").exists()


def test_a_mistake_that_only_planning_finds_starts_nothing(
    sweeps: Sweeps, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = (*_data(tmp_path, "red", "blue", "green"), "model.num_embeddings=[10],[3]", *HERE)
    assert main(["train", "-m", *overrides, f"hydra.sweep.dir={sweeps.folder}"]) == 2
    assert capsys.readouterr().err == (
        "1 mistake in the configuration:\n  point 1 (model.num_embeddings=[3]): model.num_embeddings[0]: 3 rows are "
        "too few for 'color': its vocabulary needs 5; write at least 5, or data.encoding=hash\n"
    )
    assert sweeps.started == []
    assert not sweeps.folder.parent.exists()


def test_data_that_cannot_be_learned_starts_nothing(
    sweeps: Sweeps, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = _data(tmp_path, "red", "blue")
    (tmp_path / "other.csv").write_text("label,color\n5,red\n")
    paths = f"data.path={tmp_path}/data.csv,{tmp_path}/other.csv"
    arguments = [*overrides, paths, "seed=1,2", *HERE, f"hydra.sweep.dir={sweeps.folder}"]
    assert main(["train", "-m", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("nothing was started, since these points would fail:\n  points 2, 3 (data.path=")
    assert error.count("column 'label'") == 1
    assert sweeps.started == []
    assert not sweeps.folder.exists()


def test_two_points_of_one_folder_are_refused(sweeps: Sweeps, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweeps.run("seed=1,2", "hydra.sweep.subdir=same") == 2
    assert capsys.readouterr().err.endswith(
        "  hydra.sweep.subdir: 'same' is the folder of 2 points: 0, 1; leave it out; each point then has a folder "
        "with its number\n"
    )


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["train", "-m", "seed=1,2", f"hydra.sweep.dir={tmp_path}/file/sweep"]) == 2
    text = f"hydra.sweep.dir: '{tmp_path}/file/sweep' cannot be written: Not a directory; name another folder"
    assert text in capsys.readouterr().err


def test_sweeps_in_files_are_checked_and_run(
    sweeps: Sweeps, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "conf" / "recipes" / "study.yaml"
    recipe.parent.mkdir(parents=True)
    recipe.write_text("# @package _global_\nhydra:\n  sweeper:\n    params:\n      optim.sparse.lr: 0.1,-3\n")
    flags = ("--config-dir", str(tmp_path / "conf"))
    assert sweeps.run("+recipes=study", "seed=1,2", flags=flags) == 2
    assert "  points 2, 3 (optim.sparse.lr=-3): optim.sparse.lr: -3.0 is below" in capsys.readouterr().err
    recipe.write_text("# @package _global_\nhydra:\n  sweeper:\n    params:\n      optim.sparse.lr: 0.1,3\n")
    assert sweeps.run("+recipes=study", flags=flags) == 0
    assert [row["optim.sparse.lr"] for row in sweeps.rows()] == ["0.1", "3"]


def test_a_sweep_that_hydra_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "-m", "seed=1,2", "hydra.nonsense=1"]) == 2
    assert "  hydra: Could not override 'hydra.nonsense'." in capsys.readouterr().err
    assert main(["train", "seed=1", "hydra.mode=MULTIRUN"]) == 2
    assert capsys.readouterr().err.endswith(
        "  hydra.mode: 'MULTIRUN' makes a sweep whose points are not checked; leave it out and write -m\n"
    )


def test_a_sweeper_that_draws_its_points_is_refused(sweeps: Sweeps, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweeps.run("seed=1,2", "hydra.sweeper._target_=hydra_plugins.study.StudySweeper") == 2
    assert capsys.readouterr().err.endswith(
        "  hydra/sweeper: 'basic' draws its points while the sweep runs, and neo checks and plans all of them before "
        "the first; leave it out\n"
    )


def test_points_go_to_a_launcher_in_batches(sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SweepConfiguration, "runs_here", property(lambda self: False))
    sweeps.behaviours["1"] = _failed
    assert sweeps.run("seed=1,2", "hydra.sweeper.max_batch_size=1") == 1
    assert sweeps.started == ["0", "1"]
    assert sweeps.statuses() == ["done", "failed"]


def test_what_a_launcher_cannot_do_is_refused(
    sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SweepConfiguration, "runs_here", property(lambda self: False))
    wrong = ("sweep.on_failure=stop", "+hydra.launcher.nodes=2", "hydra.sweeper.max_batch_size=0")
    assert sweeps.run("seed=1,2", *wrong) == 2
    assert capsys.readouterr().err == (
        "3 mistakes in the configuration:\n"
        "  hydra.sweeper.max_batch_size: 0 is below the limit 1\n"
        "  sweep.on_failure: 'stop' is not possible with hydra/launcher=basic, which starts the points together; "
        "leave it out\n"
        "  hydra.launcher.nodes: 2 would start each point 2 times; a point starts its own workers on its node; leave "
        "it at 1, and set trainer.devices\n"
    )
    assert main(["train", "-m", "seed=1,2", "hydra/launcher=submitit_slurm"]) == 2
    assert "install hydra-submitit-launcher, or neo-zionex with its extra: neo-zionex[slurm]" in capsys.readouterr().err


def test_a_sweep_of_plans(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, 'SRC'); from neo.cli.main import main\n"
        "code = main(['plan', '-m', 'hardware.accelerator.hbm.capacity=100B,1GiB', 'hardware.node.ddr.capacity=0',\n"
        "             'model.num_embeddings=[50,60]', 'hydra.sweep.dir=FOLDER'])\n"
        "print(code, sorted({'torch', 'lightning', 'fbgemm_gpu'} & set(sys.modules)), file=sys.stderr)"
    ).replace("SRC", str(ROOT / "src")).replace("FOLDER", str(tmp_path / "sweep"))  # fmt: skip
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stderr.endswith("0 []\n"), done.stderr
    with (tmp_path / "sweep" / "sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["infeasible", "done"]
    assert int(rows[1]["hbm_bytes"]) > 0
    assert "ssd_bytes" not in rows[0]
    for point in (0, 1):
        assert (tmp_path / "sweep" / str(point) / "estimate.json").is_file()
    log = (tmp_path / "sweep" / "1" / "neo.log").read_text()
    assert "point 1 (one of 2): hardware.accelerator.hbm.capacity=1GiB" in log
    assert "point 1 done" in log
