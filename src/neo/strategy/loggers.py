"""The loggers of a run, made from their names. A package is imported when its logger is asked for."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.loggers.logger import DummyLogger

from neo.errors import ConfigError, Finding
from neo.strategy.spec import LOGGERS, LoggerSpec


def make_loggers(spec: LoggerSpec, run_dir: Path, *, rank: int) -> list[Logger]:
    """Return the loggers that a run was asked for, in their order; ranks other than 0 log nothing.

    Raises:
        ConfigError: One cannot be made; names it and says why.
    """
    loggers: list[Logger] = []
    if rank != 0:
        return [DummyLogger() for _ in spec.names]
    for name in spec.names:
        try:
            made = LOGGERS.get(name)(run_dir, spec)
        except Exception as error:
            fix = "repair it, or leave it out of logger.names"
            raise ConfigError([Finding("logger.names", f"'{name}' cannot be made: {error}", fix)]) from error
        if not isinstance(made, Logger):
            problem = f"'{name}' made a {type(made).__name__}, not a lightning.pytorch.loggers.Logger"
            raise ConfigError([Finding("logger.names", problem, "repair or uninstall the package that registered it")])
        loggers.append(made)
    return loggers


def make_csv(run_dir: Path, spec: LoggerSpec) -> CSVLogger:
    """Return the writer of ``logs/metrics.csv``."""
    return CSVLogger(run_dir, name="", version="logs")


def make_tensorboard(run_dir: Path, spec: LoggerSpec) -> TensorBoardLogger:
    """Return the writer of ``tensorboard/``."""
    return TensorBoardLogger(run_dir, name="", version="tensorboard")


def make_wandb(run_dir: Path, spec: LoggerSpec) -> WandbLogger:
    """Return the logger of Weights & Biases, its files in ``wandb/``."""
    return WandbLogger(
        name=spec.run_name, project=spec.project, save_dir=run_dir, offline=spec.wandb_mode.value == "offline"
    )


def make_mlflow(run_dir: Path, spec: LoggerSpec) -> MLFlowLogger:
    """Return the logger of MLflow; without a tracking store its records are in ``mlflow.db``."""
    uri = spec.mlflow_uri if spec.mlflow_uri is not None else f"sqlite:///{(run_dir / 'mlflow.db').resolve()}"
    return MLFlowLogger(
        experiment_name=spec.project,
        run_name=spec.run_name,
        tracking_uri=uri,
        artifact_location=(run_dir / "mlflow").resolve().as_uri() if spec.mlflow_uri is None else None,
    )


def log_configuration(loggers: list[Logger], configuration: Mapping[str, Any]) -> None:
    """Tell wandb, mlflow and loggers of other packages how the run was configured; the folder has a file of it."""
    for logger in loggers:
        if not isinstance(logger, CSVLogger | TensorBoardLogger | DummyLogger):
            logger.log_hyperparams(cast(dict[str, Any], json.loads(json.dumps(configuration, default=str))))
