"""Loggers, callbacks and times of validation: what is refused when the configuration is read, with the text."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from neo.config.cross_checks import cross_findings
from neo.config.purpose import Purpose
from neo.config.schema import NeoConfig
from neo.strategy import logger_options
from neo.strategy.callback_options import (
    CALLBACKS,
    CallbacksConfig,
    EarlyStoppingConfig,
    EarlyStoppingSpec,
    ProfilerConfig,
    StopAtConfig,
)
from neo.strategy.logger_options import LOGGERS, LoggerConfig, register_logger
from neo.strategy.spec import TrainerConfig


def _texts(config: Any) -> list[str]:
    return [str(finding) for finding in config.validate()]


@pytest.fixture(autouse=True)
def _registries_as_they_were() -> Iterator[None]:
    kept = [dict(registry._targets) for registry in (LOGGERS, CALLBACKS)]
    needs = dict(logger_options._NEEDS)
    yield
    for registry, targets in zip((LOGGERS, CALLBACKS), kept, strict=True):
        registry._targets = targets
    logger_options._NEEDS.clear()
    logger_options._NEEDS.update(needs)


@pytest.fixture
def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logger_options, "find_spec", lambda package: None)


def test_the_defaults_are_fine_and_watch_nothing() -> None:
    assert _texts(LoggerConfig()) == _texts(CallbacksConfig()) == []
    spec = CallbacksConfig().to_spec()
    assert (spec.early_stopping, spec.stop_at, spec.profiler, spec.own) == (None, (), None, ())
    assert LoggerConfig().to_spec().names == ("csv", "tensorboard")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            LoggerConfig(names=["cvs", "csv", "csv"]),
            [
                "names: 'cvs' is not a logger; did you mean 'csv'? Choices: csv, mlflow, tensorboard, wandb",
                "names: 'csv' stands twice; write it once",
            ],
        ),
        (
            LoggerConfig(names=["csv"], project="mine", wandb_mode="offline"),
            [
                "project: mine has no effect on 'csv'; leave it at neo, or use logger=wandb or logger=mlflow",
                "wandb_mode: offline has no effect on 'csv'; leave it at online, or use logger=wandb",
            ],
        ),
        (
            LoggerConfig(names=[], mlflow_uri="file:x"),
            ["mlflow_uri: file:x has no effect on 'none'; leave it at null, or use logger=mlflow"],
        ),
        (
            LoggerConfig(options={"csv": {"a": 1}, "other": {"a": 1}, "third": 3}),
            [
                "options.csv: 'csv' is neo's own and reads no free options; leave it out",
                "options.other: has no effect: 'other' is not in logger.names; leave it out",
                "options.third: is not a mapping; write ++logger.options.third.OPTION=VALUE",
            ],
        ),
        (
            EarlyStoppingConfig(monitor="acu", patience=0),
            [
                "patience: 0 is below the limit 1; write 1 to 2^62",
                "monitor: 'acu' is not a metric of a validation; did you mean 'auc'? "
                "Choices: accuracy, auc, log_loss, ne",
            ],
        ),
        (
            EarlyStoppingConfig(patience=2, mode="max"),
            ["mode: 'max' contradicts 'ne': less of it is better"],
        ),
        (
            EarlyStoppingConfig(patience=2, monitor="auc", mode="min"),
            ["mode: 'min' contradicts 'auc': more of it is better"],
        ),
        (
            EarlyStoppingConfig(patience=2, mode="mix"),
            ["mode: 'mix' is not a mode; did you mean 'min'? Choices: auto, max, min"],
        ),
        (
            EarlyStoppingConfig(monitor="auc", min_delta=-0.5),
            [
                "min_delta: -0.5 is below the limit 0; write 0 or more",
                "monitor: auc has no effect without patience; add callbacks.early_stopping.patience=3, or leave it out",
                "min_delta: -0.5 has no effect without patience; "
                "add callbacks.early_stopping.patience=3, or leave it out",
            ],
        ),
        (StopAtConfig(auc=83.0), ["auc: 83.0 is above the limit 1; write 0 to 1"]),
        (
            ProfilerConfig(from_step=0, num_steps=5000),
            [
                "from_step: 0 is below the limit 1; write 1 to 2^62",
                "num_steps: 5000 is above the limit 1000; write 1 to 1000",
            ],
        ),
        (
            ProfilerConfig(shapes=True),
            ["shapes: true has no effect without from_step; add callbacks.profiler.from_step=10, or leave it out"],
        ),
        (
            CallbacksConfig(own=["mine"], options={"yours": {"a": 1}, "x": 1}),
            [
                "own: 'mine' is not a callback of an installed package; Choices: none",
                "options.yours: has no effect: 'yours' is not in callbacks.own; leave it out",
                "options.x: is not a mapping; write ++callbacks.options.x.OPTION=VALUE",
            ],
        ),
        (
            TrainerConfig(val_check_interval=0, limit_val_batches=-1),
            [
                "val_check_interval: 0 is below the limit 1; write 1 to 2^62",
                "limit_val_batches: -1 is below the limit 0; write 0 to 2^62",
            ],
        ),
        (
            TrainerConfig(val_check_interval=1.5, limit_val_batches=0.0),
            [
                "val_check_interval: 1.5 is no part in (0, 1]; write a part, or a count from 1",
                "limit_val_batches: 0.0 is no part in (0, 1]; write a part, or a count from 0",
            ],
        ),
    ],
)
def test_mistakes(config: Any, expected: list[str]) -> None:
    assert _texts(config) == expected


@pytest.mark.usefixtures("_nothing_installed")
def test_a_logger_whose_package_is_missing_is_told_with_the_extra() -> None:
    assert _texts(LoggerConfig(names=["csv", "wandb"])) == [
        "names: 'wandb' needs the package wandb, which is not installed; pip install 'neo-zionex[wandb]'"
    ]


@pytest.mark.usefixtures("_nothing_installed")
def test_another_package_adds_a_logger() -> None:
    register_logger("slate", "slate.neo:make", package="slate_client")
    assert _texts(LoggerConfig(names=["slate"], options={"slate": {"a": 1}})) == [
        "names: 'slate' needs the package slate_client, which is not installed; pip install slate_client"
    ]


def test_a_switch_turns_its_callback_on() -> None:
    config = CallbacksConfig(
        early_stopping=EarlyStoppingConfig(patience=3, monitor="auc"),
        stop_at=StopAtConfig(auc=0.83, ne=0.7),
        profiler=ProfilerConfig(from_step=4),
    )
    spec = config.to_spec()
    assert spec.early_stopping == EarlyStoppingSpec("auc", 3, 0.0)
    assert spec.early_stopping.maximizes
    assert spec.stop_at == (("auc", 0.83), ("ne", 0.7))
    assert spec.profiler is not None and (spec.profiler.from_step, spec.profiler.num_steps) == (4, 3)
    assert spec.watches_validation == ("early_stopping.patience", "stop_at.auc", "stop_at.ne")


def _watching(**data: Any) -> NeoConfig:
    config = NeoConfig()
    config.callbacks = CallbacksConfig(stop_at=StopAtConfig(auc=0.83))
    config.data = replace(config.data, **data)
    config.trainer.accelerator = "cpu"
    config.hardware.name, config.hardware.detect = "local", True
    return config


def test_what_waits_for_validations_that_never_come_is_refused() -> None:
    config = _watching()
    config.trainer.limit_val_batches = 0
    assert [str(finding) for finding in cross_findings(config, Purpose.TRAIN)] == [
        "callbacks.stop_at.auc: reads validations, and trainer.limit_val_batches=0 takes none; "
        "let some batches be validated, or leave it out"
    ]
    assert [str(finding) for finding in cross_findings(_watching(val_samples=0), Purpose.TRAIN)] == [
        "callbacks.stop_at.auc: reads validations, and there is no validation data; "
        "name some with data.val_path, or leave it out"
    ]
    assert cross_findings(_watching(), Purpose.TRAIN) == []


def test_a_monitor_without_a_logger_is_refused() -> None:
    config = _watching()
    config.callbacks.learning_rate_monitor = True
    assert cross_findings(config, Purpose.TRAIN) == []
    config.logger = LoggerConfig(names=[])
    assert [str(finding) for finding in cross_findings(config, Purpose.TRAIN)] == [
        "callbacks.learning_rate_monitor: true has no effect: logger.names is [], so nothing is logged; "
        "leave it out, or use logger=csv"
    ]
