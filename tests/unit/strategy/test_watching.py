"""Callbacks that watch a run, without a trainer's loop: stopping, fallbacks, plugins, loggers, times of validation."""

import csv
import io
import json
from collections.abc import Iterator, Sized
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.loggers.logger import DummyLogger
from rich.console import Console
from torch import nn

from neo.config.purpose import Purpose
from neo.config.resolve import resolve_content
from neo.config.run_config import RunConfig
from neo.errors import ConfigError
from neo.metrics.binary import BinaryReport
from neo.strategy.callback_options import CALLBACKS, EarlyStoppingSpec
from neo.strategy.fallbacks import RefuseFallbacks, all_fallbacks, planned_fallbacks
from neo.strategy.lightning_module import RecommendationModule
from neo.strategy.logger_options import LOGGERS, LoggerConfig
from neo.strategy.loggers import log_configuration, make_loggers
from neo.strategy.spec import TrainerConfig
from neo.strategy.step_trace import StepTrace
from neo.strategy.stopping import EarlyStopping, StopAt
from neo.strategy.trained import AssertTrained
from neo.strategy.validation_times import check_validation, validation_times
from neo.strategy.watching import watching_callbacks


def module_with(auc: float | None = 0.8, ne: float = 0.75, samples: int = 10) -> Any:
    module = object.__new__(RecommendationModule)
    nn.Module.__init__(module)
    module.report = BinaryReport(auc, 0.0, 0.5, ne, 0.7, 1.0, samples)
    return module


def trainer(rank: int = 0, fn: str = "fit") -> Any:
    state = SimpleNamespace(fn=fn)
    return SimpleNamespace(should_stop=False, global_step=7, is_global_zero=rank == 0, state=state)


def console() -> Console:
    return Console(file=io.StringIO(), width=60)


def printed(target: Console) -> str:
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()


def test_early_stopping_counts_validations_that_are_no_better() -> None:
    shown = console()
    stopping, run = EarlyStopping(EarlyStoppingSpec("ne", 2, 0.01), shown), trainer()
    for ne in (0.80, 0.75, 0.745, 0.76):
        assert not run.should_stop
        stopping.on_validation_end(run, module_with(ne=ne))
    assert run.should_stop
    assert printed(shown) == "stopped after step 7: ne was no better in 2 validations in a row (at best 0.7500)\n"


def test_early_stopping_looks_for_more_where_more_is_better() -> None:
    stopping, run = EarlyStopping(EarlyStoppingSpec("auc", 1, 0.0), console()), trainer(rank=1)
    for auc in (0.70, 0.75, 0.76):
        stopping.on_validation_end(run, module_with(auc=auc))
    assert not run.should_stop
    stopping.on_validation_end(run, module_with(auc=0.76))
    assert run.should_stop


def test_early_stopping_goes_on_from_a_checkpoint() -> None:
    first, second = (EarlyStopping(EarlyStoppingSpec("ne", 2, 0.0), console()) for _ in range(2))
    first.on_validation_end(trainer(), module_with(ne=0.7))
    first.on_validation_end(trainer(), module_with(ne=0.8))
    second.load_state_dict(first.state_dict())
    run = trainer()
    second.on_validation_end(run, module_with(ne=0.8))
    assert run.should_stop


def test_a_metric_that_is_not_known_is_no_better() -> None:
    shown = console()
    stopping, run = EarlyStopping(EarlyStoppingSpec("auc", 1, 0.0), shown), trainer()
    stopping.on_validation_end(run, module_with(auc=None))
    assert run.should_stop
    assert "auc was no better in 1 validation in a row (never known)" in printed(shown)


@pytest.mark.parametrize(("goals", "stops"), [((("auc", 0.8),), True), ((("auc", 0.81), ("ne", 0.7)), False)])
def test_a_goal_that_is_reached_ends_the_run(goals: tuple[tuple[str, float], ...], stops: bool) -> None:
    shown, run = console(), trainer()
    StopAt(goals, shown).on_validation_end(run, module_with(auc=0.8, ne=0.75))
    assert run.should_stop is stops
    expected = "stopped after step 7: auc 0.8000 has reached callbacks.stop_at.auc=0.8\n" if stops else ""
    assert printed(shown) == expected


def test_less_of_a_loss_is_a_goal() -> None:
    run = trainer()
    StopAt((("ne", 0.75),), console()).on_validation_end(run, module_with(ne=0.74))
    assert run.should_stop


def test_a_validation_after_the_training_stops_nothing() -> None:
    run = trainer(fn="validate")
    StopAt((("auc", 0.5),), console()).on_validation_end(run, module_with())
    assert not run.should_stop


class Loader(Sized):
    def __init__(self, length: int | None) -> None:
        self.length = length

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError("not known")
        return self.length


@pytest.mark.parametrize(
    ("config", "lengths", "expected"),
    [
        (TrainerConfig(val_check_interval=0.5, limit_val_batches=0.5), (10, 2), []),
        (TrainerConfig(val_check_interval=1.0, limit_val_batches=1.0), (None, None), []),
        (TrainerConfig(val_check_interval=7, limit_val_batches=3), (None, None), []),
        (
            TrainerConfig(val_check_interval=0.5, limit_val_batches=0.5),
            (None, None),
            [
                "trainer.val_check_interval: 0.5 of an epoch cannot be told: its length is not known before "
                "everything is read; write a whole number of batches",
                "trainer.limit_val_batches: 0.5 of the validation data cannot be told: its length is not known before "
                "everything is read; write a whole number of batches",
            ],
        ),
        (
            TrainerConfig(limit_val_batches=0.1),
            (10, 9),
            ["trainer.limit_val_batches: 0.1 of 9 global batches is less than one; write trainer.limit_val_batches=1"],
        ),
    ],
)
def test_parts_of_what_is_not_known_are_refused(
    config: TrainerConfig, lengths: tuple[int | None, int | None], expected: list[str]
) -> None:
    train, val = (Loader(length) for length in lengths)
    if not expected:
        check_validation(config.to_spec(), train, val)
        return
    with pytest.raises(ConfigError) as error:
        check_validation(config.to_spec(), train, val)
    assert [str(finding) for finding in error.value.findings] == expected


def test_steps_between_validations_are_counted_over_the_whole_run() -> None:
    assert validation_times(TrainerConfig(val_check_interval=100).to_spec()) == {
        "val_check_interval": 100,
        "check_val_every_n_epoch": None,
    }
    assert validation_times(TrainerConfig(val_check_interval=0.25, limit_val_batches=2).to_spec()) == {
        "val_check_interval": 0.25,
        "limit_val_batches": 2,
    }
    assert validation_times(TrainerConfig().to_spec()) == {}


class Replaced(nn.Module):
    """Stands for a module whose tables were built with a fallback."""


def test_strict_ends_a_run_whose_tables_were_built_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    collection = SimpleNamespace(fallbacks=("ops: reference instead of fbgemm",))
    told = [["table 'b': reference"], ["ops: reference instead of fbgemm"]]
    monkeypatch.setattr("neo.strategy.fallbacks.find_collections", lambda module: {"embeddings": collection})
    monkeypatch.setattr(
        "neo.strategy.fallbacks.TorchCollectives", lambda: SimpleNamespace(all_gather_object=lambda own: [*told, own])
    )
    with pytest.raises(ConfigError) as error:
        RefuseFallbacks().on_train_start(trainer(), Replaced())  # type: ignore[arg-type]
    assert [str(finding) for finding in error.value.findings] == [
        "strict: true refuses a fallback: table 'b': reference; ask for what runs, or leave strict out",
        "strict: true refuses a fallback: ops: reference instead of fbgemm; ask for what runs, or leave strict out",
    ]
    told.clear()
    collection.fallbacks = ()
    RefuseFallbacks().on_train_start(trainer(), Replaced())  # type: ignore[arg-type]


def test_what_the_planner_replaced_is_part_of_the_summary(tmp_path: Path) -> None:
    assert planned_fallbacks(tmp_path) == ()
    (tmp_path / "planned.json").write_text(json.dumps({"fallbacks": ["a", "b"]}))
    assert all_fallbacks(planned_fallbacks(tmp_path), ("b", "c")) == ("a", "b", "c")


def config_with(**callbacks: Any) -> RunConfig:
    content = {
        "hardware": {"name": "local", "detect": True},
        "callbacks": callbacks,
        "strict": bool(callbacks.pop("strict", False)),
        "trainer": {"accelerator": "cpu"},
    }
    return resolve_content(content, purpose=Purpose.TRAIN)


@pytest.fixture
def _callback() -> Iterator[None]:
    CALLBACKS.register("mine", "unit.strategy.test_watching:Mine")
    CALLBACKS.register("no_callback", "builtins:dict")
    yield
    CALLBACKS._targets.clear()


class Mine(Callback):
    def __init__(self, *, every: int = 1) -> None:
        self.every = every


def test_nothing_is_watched_by_default(tmp_path: Path) -> None:
    assert watching_callbacks(config_with(), tmp_path, console()) == []


@pytest.mark.usefixtures("_callback")
def test_the_callbacks_of_a_run(tmp_path: Path) -> None:
    config = config_with(
        strict=True,
        early_stopping={"patience": 2},
        stop_at={"auc": 0.9},
        learning_rate_monitor=True,
        assert_trained=True,
        profiler={"from_step": 2},
        own=["mine"],
        options={"mine": {"every": 5}},
    )
    found = watching_callbacks(config, tmp_path, console())
    kinds = [type(callback).__name__ for callback in found]
    assert kinds == [
        "RefuseFallbacks",
        "LearningRateMonitor",
        "EarlyStopping",
        "StopAt",
        "AssertTrained",
        "Mine",
        "StepTrace",
    ]
    assert found[-2].every == 5  # type: ignore[attr-defined]


@pytest.mark.usefixtures("_callback")
@pytest.mark.parametrize(
    ("callbacks", "expected"),
    [
        (
            {"own": ["mine"], "options": {"mine": {"evry": 5}}},
            "callbacks.options.mine: the callback 'mine' cannot be made: Mine.__init__() got an unexpected keyword "
            "argument 'evry'; correct its options, or leave it out of callbacks.own",
        ),
        (
            {"own": ["no_callback"]},
            "callbacks.own: 'no_callback' made a dict, not a lightning.pytorch.Callback; "
            "repair or uninstall the package that registered it",
        ),
    ],
)
def test_a_callback_that_cannot_be_made(callbacks: dict[str, Any], expected: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        watching_callbacks(config_with(**callbacks), tmp_path, console())
    assert [str(finding) for finding in error.value.findings] == [expected]


def test_rank_0_alone_logs(tmp_path: Path) -> None:
    spec = LoggerConfig().to_spec()
    assert [type(made) for made in make_loggers(spec, tmp_path, rank=0)] == [CSVLogger, TensorBoardLogger]
    assert [type(made) for made in make_loggers(spec, tmp_path, rank=1)] == [DummyLogger, DummyLogger]
    assert make_loggers(LoggerConfig(names=[]).to_spec(), tmp_path, rank=0) == []


@pytest.mark.parametrize("resumes", [True, False])
@pytest.mark.filterwarnings("ignore:Experiment logs directory")  # as ``silence_lightning`` does in a run
def test_a_resumed_run_keeps_the_curve_of_its_first_part(resumes: bool, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    path = tmp_path / "logs" / "metrics.csv"
    path.write_text("step,train/loss,val/auc\n5,0.7,\n5,,0.6\n10,0.6,\n1")
    (logger,) = make_loggers(LoggerConfig(names=["csv"]).to_spec(), tmp_path, rank=0, resumes=resumes)
    logger.log_metrics({"train/loss": 0.5, "new": 1.0}, step=15)
    logger.finalize("success")
    with path.open(newline="") as file:
        rows = [
            (row["step"], row["train/loss"], row.get("val/auc")) for row in csv.DictReader(file) if row["new"] == ""
        ]
    assert rows == ([("5", "0.7", ""), ("5", "", "0.6"), ("10", "0.6", "")] if resumes else [])


def make_broken(run_dir: Path, spec: Any) -> None:
    raise OSError(f"no server for {spec.options['broken']['url']}")


def make_dict(run_dir: Path, spec: Any) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "broken",
            "logger.names: 'broken' cannot be made: no server for here; repair it, or leave it out of logger.names",
        ),
        (
            "dict",
            "logger.names: 'dict' made a dict, not a lightning.pytorch.loggers.Logger; "
            "repair or uninstall the package that registered it",
        ),
    ],
)
def test_a_logger_that_cannot_be_made(
    name: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LOGGERS._targets, name, f"unit.strategy.test_watching:make_{name}")
    config = LoggerConfig(names=[name], options={name: {"url": "here"}})
    assert config.validate() == []
    with pytest.raises(ConfigError) as error:
        make_loggers(config.to_spec(), tmp_path, rank=0)
    assert [str(finding) for finding in error.value.findings] == [expected]


@pytest.mark.filterwarnings("ignore")  # what MLflow's own dependencies announce is not ours to judge
def test_mlflow_keeps_a_run_in_the_run_folder(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    (logger,) = make_loggers(LoggerConfig(names=["mlflow"]).to_spec(), tmp_path, rank=0)
    log_configuration([logger], {"seed": 3})
    logger.log_metrics({"train/loss": 0.5}, step=3)
    logger.finalize("success")
    import sqlite3

    with sqlite3.connect(tmp_path / "mlflow.db") as store:
        assert store.execute("select key, value, step from metrics").fetchall() == [("train/loss", 0.5, 3)]
        assert store.execute("select key, value from params").fetchall() == [("seed", "3")]


def test_a_run_without_a_step_is_not_judged() -> None:
    AssertTrained().on_train_end(trainer(), Replaced())  # type: ignore[arg-type]


def test_a_run_that_never_came_to_the_traced_step_says_so(tmp_path: Path) -> None:
    shown = console()
    spec = config_with(profiler={"from_step": 9}).callbacks.profiler
    assert spec is not None
    StepTrace(spec, tmp_path, shown).on_train_end(trainer(), torch.nn.Identity())  # type: ignore[arg-type]
    assert printed(shown) == "no trace: this run ended with step 7, before callbacks.profiler.from_step=9\n"
    assert not (tmp_path / "profile").exists()
