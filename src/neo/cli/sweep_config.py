"""What a sweep is as a whole: Hydra's part of it, composed before any point is looked at."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from hydra import version
from hydra._internal.callbacks import Callbacks
from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigLoadError
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from neo.config.composition import ConfigSource, ConfigTree
from neo.errors import Finding
from neo.launch.spec import OnFailure, SweepSpec

_BASIC_SWEEPER = f"{BasicSweeper.__module__}.{BasicSweeper.__name__}"
_BASIC_LAUNCHER = f"{BasicLauncher.__module__}.{BasicLauncher.__name__}"
_HYDRA_ERRORS = (HydraException, yaml.YAMLError, OmegaConfBaseException, ConfigLoadError, ValueError, OSError)


@dataclass(frozen=True)
class SweepConfiguration:
    """A sweep without its points.

    Attributes:
        hydra: Hydra, for these files.
        master: The configuration of the sweep: all but what differs between its points.
    """

    hydra: Hydra
    master: DictConfig

    @property
    def context(self) -> HydraContext:
        """What Hydra's jobs and launchers want."""
        return HydraContext(config_loader=self.hydra.config_loader, callbacks=self.callbacks)

    @property
    def callbacks(self) -> Callbacks:
        """What ``hydra.callbacks`` names."""
        return Callbacks(self.master)

    @property
    def params(self) -> list[str]:
        """Sweeps that files have in ``hydra.sweeper.params``, as ``KEY=VALUES``."""
        params = self.master.hydra.sweeper.get("params") or {}
        return [f"{key}={'null' if value is None else value}" for key, value in params.items()]

    @property
    def folder(self) -> Path:
        """``hydra.sweep.dir``."""
        return Path(str(self.master.hydra.sweep.dir))

    @property
    def max_batch_size(self) -> int | None:
        """``hydra.sweeper.max_batch_size``: the most points that a launcher is given at a time."""
        found: int | None = self.master.hydra.sweeper.get("max_batch_size")
        return found

    @property
    def runs_here(self) -> bool:
        """Whether this process runs the points itself, one after the other."""
        return str(self.master.hydra.launcher.get("_target_")) == _BASIC_LAUNCHER

    @property
    def spec(self) -> SweepSpec:
        """``sweep.*``."""
        return SweepSpec(OnFailure(self.master.sweep.on_failure), bool(self.master.sweep.resume))

    def findings(self) -> list[Finding]:
        """Return what keeps a sweep, otherwise well configured, from being run as it is asked for."""
        findings = []
        if str(self.master.hydra.sweeper.get("_target_")) != _BASIC_SWEEPER:
            problem = "draws its points while the sweep runs, and neo checks and plans all of them before the first"
            findings.append(Finding("hydra/sweeper", f"'{self._chosen('hydra/sweeper')}' {problem}", "leave it out"))
        size = self.max_batch_size
        if size is not None and size < 1:
            findings.append(Finding("hydra.sweeper.max_batch_size", f"{size} is below the limit 1"))
        if self.runs_here:
            return findings
        launcher = self._chosen("hydra/launcher")
        if self.spec.on_failure is OnFailure.STOP:
            problem = f"'stop' is not possible with hydra/launcher={launcher}, which starts the points together"
            findings.append(Finding("sweep.on_failure", problem, "leave it out"))
        for key in ("nodes", "tasks_per_node"):
            value = self.master.hydra.launcher.get(key, 1)
            if value != 1:
                problem = f"{value} would start each point {value} times; a point starts its own workers on its node"
                findings.append(Finding(f"hydra.launcher.{key}", problem, "leave it at 1, and set trainer.devices"))
        return findings

    def _chosen(self, group: str) -> str:
        return str(self.master.hydra.runtime.choices.get(group))


def compose_sweep(overrides: Sequence[str], source: ConfigSource) -> SweepConfiguration | Finding:
    """Return the sweep that a command line asks for, or what Hydra has against it."""
    version.setbase("1.3")
    hydra = Hydra(task_name="neo", config_loader=ConfigTree(source).loader)
    GlobalHydra.instance().clear()
    GlobalHydra.instance().initialize(hydra)
    try:
        master = hydra.compose_config(
            config_name=source.config_name,
            overrides=[*overrides, "hydra.mode=MULTIRUN"],
            run_mode=RunMode.MULTIRUN,
            with_log_configuration=False,
        )
        _ = master.hydra.sweep.dir
    except _HYDRA_ERRORS as error:
        return Finding("hydra", " ".join(str(error).partition("Config search path")[0].split()))
    return SweepConfiguration(hydra, master)
