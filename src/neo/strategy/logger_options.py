"""Which loggers a run writes to, torch-free: their names, the packages they need, and their options."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from typing import Any

from neo.errors import Finding, unknown_name
from neo.limits import without_effect
from neo.registry import Registry

CSV, TENSORBOARD, WANDB, MLFLOW = "csv", "tensorboard", "wandb", "mlflow"

LOGGERS: Registry[Any] = Registry("logger")
"""Functions ``(run_dir: Path, spec: LoggerSpec) -> lightning.pytorch.loggers.Logger``."""
_NEEDS: dict[str, tuple[str, str]] = {}


def register_logger(name: str, target: str, *, package: str | None = None, install: str | None = None) -> None:
    """Add a logger under ``name``.

    Args:
        name: What ``logger.names`` calls it.
        target: ``module:attr`` of a function of the run folder and the ``LoggerSpec``.
        package: The module that it cannot do without; None for none.
        install: What is typed to install it; by default ``pip install PACKAGE``.

    Raises:
        ValueError: The name is taken by another target, or the target is not ``module:attr``.
    """
    LOGGERS.register(name, target)
    if package is not None:
        _NEEDS[name] = (package, install or f"pip install {package}")


for _name, _package in ((CSV, None), (TENSORBOARD, None), (WANDB, WANDB), (MLFLOW, MLFLOW)):
    register_logger(
        _name,
        f"neo.strategy.loggers:make_{_name}",
        package=_package,
        install=f"pip install 'neo-zionex[{_name}]'",
    )


class WandbMode(StrEnum):
    """Where Weights & Biases keeps a run."""

    ONLINE = "online"
    OFFLINE = "offline"


@dataclass(frozen=True)
class LoggerSpec:
    """``logger.*``, resolved.

    Attributes:
        names: The loggers, none twice; empty for none at all.
        project: Project of wandb, experiment of mlflow.
        run_name: What wandb and mlflow call the run; None leaves it to them.
        wandb_mode: Whether wandb sends the run away at once.
        mlflow_uri: The tracking store of mlflow; None is a database in the run folder.
        options: What plugins' loggers are told, by name.
    """

    names: tuple[str, ...]
    project: str
    run_name: str | None
    wandb_mode: WandbMode
    mlflow_uri: str | None
    options: Mapping[str, Any]


@dataclass
class LoggerConfig:
    """``logger.*``."""

    names: list[str] = field(default_factory=lambda: [CSV, TENSORBOARD])
    project: str = "neo"
    run_name: str | None = None
    wandb_mode: str = WandbMode.ONLINE.value
    mlflow_uri: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``logger``."""
        findings = [finding for name in self.names for finding in _unusable(name)]
        findings += [Finding("names", f"'{name}' stands twice", "write it once") for name in _twice(self.names)]
        if self.wandb_mode not in list(WandbMode):
            findings.append(unknown_name("wandb_mode", self.wandb_mode, "mode of wandb", list(WandbMode)))
        unread = {
            key: [f"logger={name}" for name in names]
            for key, names in (
                ("project", (WANDB, MLFLOW)),
                ("run_name", (WANDB, MLFLOW)),
                ("wandb_mode", (WANDB,)),
                ("mlflow_uri", (MLFLOW,)),
            )
            if not set(names) & set(self.names)
        }
        chosen = ", ".join(self.names) or "none"
        return findings + without_effect(self, unread, chosen) + self._options()

    def _options(self) -> list[Finding]:
        own = (CSV, TENSORBOARD, WANDB, MLFLOW)
        findings = []
        for name, content in self.options.items():
            key = f"options.{name}"
            if not isinstance(content, Mapping):
                findings.append(Finding(key, "is not a mapping", f"write ++logger.{key}.OPTION=VALUE"))
            elif name in own:
                findings.append(Finding(key, f"'{name}' is neo's own and reads no free options", "leave it out"))
            elif name not in self.names:
                findings.append(Finding(key, f"has no effect: '{name}' is not in logger.names", "leave it out"))
        return findings

    def to_spec(self) -> LoggerSpec:
        """Return the frozen form of a valid configuration."""
        return LoggerSpec(
            names=tuple(self.names),
            project=self.project,
            run_name=self.run_name,
            wandb_mode=WandbMode(self.wandb_mode),
            mlflow_uri=self.mlflow_uri,
            options=dict(self.options),
        )


def _unusable(name: str) -> list[Finding]:
    if name not in LOGGERS:
        return [unknown_name("names", name, LOGGERS.kind, LOGGERS)]
    package, install = _NEEDS.get(name, ("", ""))
    if package and find_spec(package) is None:
        return [Finding("names", f"'{name}' needs the package {package}, which is not installed", install)]
    return []


def _twice(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
