"""Every point of a sweep composed, resolved and planned before the first one starts."""

import tempfile
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from neo.cli.planning import plan_tables, settled_training, tables_by_key
from neo.cli.shared_schema import learn_shared, schema_key
from neo.config.cross_checks import machine_device
from neo.config.devices import execution_device, num_processes
from neo.config.points import SweepPoint, name_points
from neo.config.purpose import Purpose
from neo.config.resolve import read_resolved, resolve, write_resolved
from neo.config.run_config import RunConfig
from neo.data.vocabulary import DataSchema
from neo.errors import ConfigError, Finding, InfeasiblePlanError, NeoError
from neo.models.spec import TABLE_LIST


@dataclass(frozen=True)
class PlannedPoint:
    """A point that is ready to start.

    Attributes:
        point: Its number and overrides.
        config: Its whole configuration, Hydra's part included.
        folder: Its run folder.
        learned: What its data holds; None where nothing was read.
        infeasible: Why no placement fits; empty if one does.
        fingerprint: That of the configuration its run will have; empty where it is not wanted.
    """

    point: SweepPoint
    config: DictConfig = field(repr=False)
    folder: Path
    learned: Path | None
    infeasible: str
    fingerprint: str


class SweepPlanError(NeoError):
    """Points that cannot be planned for another reason than a wrong configuration."""


def plan_points(
    points: Sequence[SweepPoint],
    *,
    purpose: Purpose,
    loader: ConfigLoader,
    master: DictConfig,
    learned: Path,
    with_fingerprints: bool,
) -> list[PlannedPoint]:
    """Compose, resolve and plan every point; one that does not fit its machine is among those returned.

    Args:
        points: The points.
        purpose: What they are for.
        loader: Hydra's reader of configurations.
        master: The configuration of the whole sweep.
        learned: Folder for what is learned from the data; points with the same data learn once.
        with_fingerprints: Whether the fingerprint of each configuration is wanted, which takes a moment.

    Raises:
        ConfigError: A configuration is wrong, or two points have one folder; names the points.
        SweepPlanError: The data of a point is not what its configuration says; names the points.
    """
    planner = _Planner(purpose, loader, master, learned, with_fingerprints)
    planned, wrong, others = [], [], []
    for point in points:
        findings: Sequence[Finding] = ()
        problem: list[Finding] = []
        try:
            planned.append(planner.plan(point))
        except ConfigError as error:
            findings = error.findings
        except NeoError as error:
            problem = [Finding("data", str(error))]
        wrong.append((point, findings))
        others.append((point, problem))
    findings = [*name_points(wrong), *_shared_folders(planned)]
    if findings:
        raise ConfigError(findings)
    problems = name_points(others)
    if problems:
        lines = [f"  {problem}" for problem in problems]
        raise SweepPlanError("\n".join(["nothing was started, since these points would fail:", *lines]))
    return planned


class _Planner:
    def __init__(
        self, purpose: Purpose, loader: ConfigLoader, master: DictConfig, learned: Path, with_fingerprints: bool
    ) -> None:
        self._purpose, self._loader, self._master, self._learned = purpose, loader, master, learned
        self._with_fingerprints = with_fingerprints
        self._failed: dict[str, NeoError] = {}

    def plan(self, point: SweepPoint) -> PlannedPoint:
        config, folder = self._compose(point)
        plain = deepcopy(config)
        with read_write(plain), open_dict(plain):
            del plain["hydra"]
        run = resolve(plain, purpose=self._purpose)
        fingerprint = _fingerprint(plain, run) if self._with_fingerprints else ""
        infeasible, learned = "", None
        try:
            learned = self._plan_tables(run)
        except InfeasiblePlanError as error:
            infeasible = str(error)
        return PlannedPoint(point, config, folder, learned, infeasible, fingerprint)

    def _compose(self, point: SweepPoint) -> tuple[DictConfig, Path]:
        """Return the configuration of a point as its job will see it, and its folder."""
        try:
            config = self._loader.load_sweep_config(self._master, point.texts)
            with read_write(config), open_dict(config):
                config.hydra.job.id = config.hydra.job.num = point.number
            HydraConfig.instance().set_config(config)
            folder = Path(str(config.hydra.sweep.dir)) / str(config.hydra.sweep.subdir)
            with read_write(config.hydra.runtime), open_dict(config.hydra.runtime):
                config.hydra.runtime.output_dir = str(folder.absolute())
            HydraConfig.instance().set_config(config)
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError([Finding("hydra", str(error).splitlines()[0])]) from error
        return config, folder

    def _plan_tables(self, run: RunConfig) -> Path | None:
        schema, learned = (None, None) if run.model.name == TABLE_LIST else self._learn(run)
        tables = tables_by_key(run, () if schema is None else schema.features)
        if self._purpose is Purpose.PLAN:
            plan_tables(run, tables, device=machine_device(run.trainer.accelerator, run.hardware))
        else:
            run = replace(run, hardware=run.hardware.scaled_to(_world_size(run)))
            plan_tables(run, tables, device=execution_device(run.trainer.accelerator))
        return learned if learned is not None and learned.is_dir() else None

    def _learn(self, run: RunConfig) -> tuple[DataSchema, Path]:
        """Learn, or say again what went wrong when another point learned the same."""
        key = schema_key(run)
        if key in self._failed:
            raise self._failed[key]
        try:
            return learn_shared(run, self._learned)
        except NeoError as error:
            self._failed[key] = error
            raise


def _world_size(run: RunConfig) -> int:
    return num_processes(run.trainer.devices, run.trainer.accelerator)


def _fingerprint(config: DictConfig, run: RunConfig) -> str:
    """Return the fingerprint that a training run of ``config`` on this host writes into its summary."""
    device = execution_device(run.trainer.accelerator)
    settled = settled_training(run, device=device, local_world_size=_world_size(run))
    with tempfile.TemporaryDirectory(prefix="neo-sweep-") as folder:
        path = Path(folder) / "resolved.yaml"
        write_resolved(path, config, settled)
        return read_resolved(path).fingerprint()


def _shared_folders(planned: Sequence[PlannedPoint]) -> list[Finding]:
    of_folder: dict[Path, list[PlannedPoint]] = {}
    for entry in planned:
        of_folder.setdefault(entry.folder.absolute(), []).append(entry)
    return [
        Finding(
            "hydra.sweep.subdir",
            f"'{OmegaConf.select(entries[0].config, 'hydra.sweep.subdir')}' is the folder of "
            f"{len(entries)} points: {', '.join(str(entry.point.number) for entry in entries)}",
            "leave it out; each point then has a folder with its number",
        )
        for entries in of_folder.values()
        if len(entries) > 1
    ]
