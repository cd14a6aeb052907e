"""The loggers of a run, made from their names. A package is imported when its logger is asked for."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.loggers.logger import DummyLogger
from torch import Tensor

from neo.errors import ConfigError, Finding
from neo.strategy.spec import LOGGERS, LoggerSpec


def make_loggers(spec: LoggerSpec, run_dir: Path, *, rank: int, resumes: bool = False) -> list[Logger]:
    """Return the loggers that a run was asked for, in their order; ranks other than 0 log nothing.

    Args:
        spec: Which.
        run_dir: The run folder.
        rank: This rank.
        resumes: Whether the run goes on from a checkpoint: what the folder's CSV file holds then stays, for the curves.

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
        if resumes and isinstance(made, CSVLogger):
            _keep_rows(made)
        loggers.append(made)
    return loggers


def _keep_rows(logger: CSVLogger) -> None:
    """Log again what the file holds: the logger removes it when it begins."""
    path = Path(logger.log_dir, "metrics.csv")
    if not path.is_file():
        return
    with path.open(encoding="utf-8", newline="") as file:
        rows = [{name: _number(text) for name, text in row.items()} for row in csv.DictReader(file)]
    for row in rows:
        step = row.pop("step", None)
        known: dict[str, Tensor | float] = {str(name): value for name, value in row.items() if value is not None}
        if step is not None and known:
            logger.log_metrics(known, step=int(step))
    logger.save()


def _number(text: Any) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):  # an empty cell, or the line that was being written when the run was killed
        return None


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
