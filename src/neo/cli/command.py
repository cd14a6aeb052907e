"""One command from its arguments to its exit code: check everything, then let Hydra run the job."""

import argparse
import importlib
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from neo.cli.run_folder import check_run_dir
from neo.config.check import check_command_line
from neo.config.composition import ConfigSource
from neo.config.purpose import Purpose
from neo.config.store import CONFIG_NAME, CONFIG_PATH, register
from neo.errors import ConfigError, Finding, InfeasiblePlanError, NeoError
from neo.launch.environment import RankEnvironment, rank_environment
from neo.launch.failures import report_to_torchrun

Job = Callable[[DictConfig, Path], int]
_JOBS = {Purpose.TRAIN: "neo.cli.train:train", Purpose.PLAN: "neo.cli.plan:plan"}
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
            return _run_hydra(purpose, arguments, multirun=False)
        if asked.cfg:
            return _show(purpose, [*flags, *overrides], overrides, asked)
        findings = _check(purpose, asked, overrides, ranks)
    except NeoError as error:
        return _report(error, speaks)
    findings = findings or check_run_dir(overrides)
    if findings:
        return _report(ConfigError(findings), speaks)
    if ranks is not None:
        overrides = [*overrides, *_rank_overrides(ranks, overrides)]
    return _run_hydra(purpose, [*flags, *overrides], multirun=asked.multirun)


def _show(purpose: Purpose, arguments: Sequence[str], overrides: Sequence[str], asked: argparse.Namespace) -> int:
    """Print the configuration (``--cfg``), whatever part of it, if it is one that could be run; nothing is planned."""
    findings = _check(purpose, asked, overrides, None)
    if findings:
        return _report(ConfigError(findings), speaks=True)
    return _run_hydra(purpose, arguments, multirun=False)


def run_job(purpose: Purpose, config: DictConfig, run_dir: Path) -> int:
    """Run one job; print whatever ends it and return the exit code."""
    try:
        module, name = _JOBS[purpose].split(":")
        return cast(Job, getattr(importlib.import_module(module), name))(config, run_dir)
    except NeoError as error:
        return _report(error, speaks=True)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    except OSError as error:
        named = f"{error.filename}: " if error.filename is not None else ""
        reason = f"{named}{error.strerror or error}"
        return _report(NeoError(f"the run in {run_dir} cannot go on: {reason}"), speaks=True)
    except Exception:
        traceback.print_exc()
    return 1


def exit_code_of(codes: Sequence[int]) -> int:
    """Return the exit code of a sweep: an infeasible point is a result, any other failure is one of the sweep."""
    if len(codes) == 1:
        return codes[0]
    return max((code for code in codes if code != InfeasiblePlanError.exit_code), default=0)


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


def _check(
    purpose: Purpose, asked: argparse.Namespace, overrides: Sequence[str], ranks: RankEnvironment | None
) -> list[Finding]:
    source = ConfigSource(
        config_name=asked.config_name or CONFIG_NAME,
        config_path=asked.config_path or CONFIG_PATH,
        config_dir=asked.config_dir,
    )
    findings = check_command_line(
        overrides,
        source,
        purpose=purpose,
        multirun=asked.multirun,
        num_started=None if ranks is None else ranks.world_size,
    )
    if ranks is not None and asked.multirun:
        problem = f"a sweep starts its own workers, and {ranks.starter} has started these already"
        findings.append(Finding("-m", problem, "run the sweep without it, or one point per job"))
    return findings


def _rank_overrides(ranks: RankEnvironment, overrides: Sequence[str]) -> list[str]:
    """Return what makes all ranks of a job share one run folder, and only rank 0 write Hydra's files."""
    named = any(override.lstrip("+").startswith("hydra.run.dir=") for override in overrides)
    added = [] if named else [f"hydra.run.dir={ranks.run_dir}"]
    return added if ranks.rank == 0 else [*added, "hydra.output_subdir=null", "hydra/job_logging=none"]


def _run_hydra(purpose: Purpose, arguments: Sequence[str], *, multirun: bool) -> int:
    codes: list[int] = []

    @hydra.main(version_base="1.3", config_path=CONFIG_PATH, config_name=CONFIG_NAME)
    def job(config: DictConfig) -> None:
        codes.append(run_job(purpose, config, Path(HydraConfig.get().runtime.output_dir)))

    sys.argv = [sys.argv[0], *arguments]
    try:
        job()
    except SystemExit as end:
        if codes:
            return exit_code_of(codes) or 1
        # Hydra stopped before the job began: what it printed is about the configuration.
        return 2 if end.code == 1 else int(end.code or 0)
    return exit_code_of(codes) if codes else 0


def _report(error: NeoError, speaks: bool) -> int:
    report_to_torchrun(type(error).__name__, str(error))
    if speaks:
        print(error, file=sys.stderr)
    return error.exit_code
