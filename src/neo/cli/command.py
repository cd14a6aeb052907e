"""One command from its arguments to its exit code: check everything, then let Hydra run the job."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from neo.cli.job import JobEnd, report, run_job
from neo.cli.run_folder import check_run_dir
from neo.config.check import check_command_line
from neo.config.composition import ConfigSource
from neo.config.purpose import Purpose
from neo.config.store import CONFIG_NAME, CONFIG_PATH, register
from neo.errors import ConfigError, Finding, NeoError
from neo.launch.environment import RankEnvironment, rank_environment

_MODE = "hydra.mode"
_SHOWS_ONLY = ("help", "hydra_help", "shell_completion", "info", "experimental_rerun")


def run_train(arguments: Sequence[str]) -> int:
    """Run ``neo train``; see ``run_command``."""
    return run_command(Purpose.TRAIN, arguments)


def run_plan(arguments: Sequence[str]) -> int:
    """Run ``neo plan``; see ``run_command``."""
    return run_command(Purpose.PLAN, arguments)


def run_command(purpose: Purpose, arguments: Sequence[str]) -> int:
    """Check and run one command; return its exit code (see ``neo.cli.main``).

    Nothing is started, and no folder is made, if the check finds a mistake.
    """
    flags, overrides, asked = _split(arguments)
    ranks = rank_environment() if purpose is Purpose.TRAIN else None
    speaks = ranks is None or ranks.rank == 0
    try:
        register()
        if any(getattr(asked, flag) for flag in _SHOWS_ONLY):
            return _run_hydra(purpose, arguments)
        if asked.cfg:
            return _show(purpose, [*flags, *overrides], overrides, asked)
        if asked.multirun:
            return _sweep(purpose, asked, overrides, ranks)
        findings = _check(purpose, asked, overrides, ranks)
    except NeoError as error:
        return report(error, speaks=speaks)
    findings = findings or check_run_dir(overrides)
    if findings:
        return report(ConfigError(findings), speaks=speaks)
    if ranks is not None:
        overrides = [*overrides, *_rank_overrides(ranks, overrides)]
    return _run_hydra(purpose, [*flags, *overrides])


def _show(purpose: Purpose, arguments: Sequence[str], overrides: Sequence[str], asked: argparse.Namespace) -> int:
    """Print the configuration (``--cfg``), whatever part of it, if it is one that could be run; nothing is planned."""
    findings = _check(purpose, asked, overrides, None)
    if findings:
        return report(ConfigError(findings), speaks=True)
    return _run_hydra(purpose, arguments)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str], argparse.Namespace]:
    """Return flags, overrides and the parsed flags. Hydra's parser wants its flags in front."""
    asked = get_args_parser().parse_intermixed_args(list(arguments))
    overrides = list(asked.overrides)
    left = list(overrides)
    flags = []
    for argument in arguments:
        if left and argument == left[0]:
            left.pop(0)
        else:
            flags.append(argument)
    return flags, overrides, asked


def _source(asked: argparse.Namespace) -> ConfigSource:
    return ConfigSource(
        config_name=asked.config_name or CONFIG_NAME,
        config_path=asked.config_path or CONFIG_PATH,
        config_dir=asked.config_dir,
    )


def _check(
    purpose: Purpose, asked: argparse.Namespace, overrides: Sequence[str], ranks: RankEnvironment | None
) -> list[Finding]:
    findings = check_command_line(
        overrides,
        _source(asked),
        purpose=purpose,
        multirun=asked.multirun,
        num_started=None if ranks is None else ranks.world_size,
    )
    return findings + [
        Finding(_MODE, "'MULTIRUN' makes a sweep whose points are not checked", "leave it out and write -m")
        for override in overrides
        if override.lstrip("+") == f"{_MODE}=MULTIRUN"
    ]


def _sweep(purpose: Purpose, asked: argparse.Namespace, overrides: Sequence[str], ranks: RankEnvironment | None) -> int:
    refused = []
    if ranks is not None:
        problem = f"a sweep starts its own workers, and {ranks.starter} has started these already"
        refused.append(Finding("-m", problem, "run the sweep without it, or one point per job"))
    run_sweep = importlib.import_module("neo.cli.sweep").run_sweep
    return cast(int, run_sweep(purpose, overrides, _source(asked), refused=refused))


def _rank_overrides(ranks: RankEnvironment, overrides: Sequence[str]) -> list[str]:
    """Return what makes all ranks of a job share one run folder, and only rank 0 write Hydra's files."""
    named = any(override.lstrip("+").startswith("hydra.run.dir=") for override in overrides)
    added = [] if named else [f"hydra.run.dir={ranks.run_dir}"]
    return added if ranks.rank == 0 else [*added, "hydra.output_subdir=null", "hydra/job_logging=none"]


def _run_hydra(purpose: Purpose, arguments: Sequence[str]) -> int:
    ends: list[JobEnd] = []

    @hydra.main(version_base="1.3", config_path=CONFIG_PATH, config_name=CONFIG_NAME)
    def job(config: DictConfig) -> None:
        ends.append(run_job(purpose, config, Path(HydraConfig.get().runtime.output_dir)))

    sys.argv = [sys.argv[0], *arguments]
    try:
        job()
    except SystemExit as end:
        if ends:
            return ends[0].exit_code or 1
        # Hydra stopped before the job began: what it printed is about the configuration.
        return 2 if end.code == 1 else int(end.code or 0)
    return ends[0].exit_code if ends else 0
