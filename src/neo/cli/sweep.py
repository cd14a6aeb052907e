"""``-m``: every point is checked and planned before the first starts; then one run each, and a table of results."""

import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from neo.cli.run_folder import held
from neo.cli.shared_schema import forget_pointer
from neo.cli.sweep_chart import write_chart
from neo.cli.sweep_config import SweepConfiguration, compose_sweep
from neo.cli.sweep_plan import PlannedPoint, plan_points
from neo.cli.sweep_rows import CSV, GOOD, Row, RowStatus, write_csv
from neo.cli.sweep_run import SweepRun
from neo.cli.sweep_table import print_table
from neo.config.check import check_command_line, sweep_points
from neo.config.composition import ConfigSource
from neo.config.points import SweepPoint
from neo.config.purpose import Purpose
from neo.errors import ConfigError, Finding

_LEARNED = ".learned"
_KEY = "hydra.sweep.dir"


def run_sweep(purpose: Purpose, overrides: Sequence[str], source: ConfigSource, *, refused: Sequence[Finding]) -> int:
    """Run a sweep and return its exit code: 1 if a point failed, was interrupted or was not started, else 0.

    Args:
        purpose: What the points are for.
        overrides: The override arguments as typed.
        source: Where configuration files come from.
        refused: What is known to be wrong already.

    Raises:
        ConfigError: The configuration of the sweep or of a point is wrong. Nothing was started.
        NeoError: The data of a point is not what its configuration says. Nothing was started.
    """
    sweep = compose_sweep(overrides, source)
    params = [] if isinstance(sweep, Finding) else sweep.params
    findings = check_command_line(overrides, source, purpose=purpose, multirun=True, sweeper_params=params)
    findings += refused
    if isinstance(sweep, Finding):
        raise ConfigError(findings or [sweep])
    findings = findings or sweep.findings()
    if findings:
        raise ConfigError(findings)
    missing = _make(sweep.folder)
    with held(sweep.folder, key=_KEY):
        try:
            planned = _plan(purpose, sweep, sweep_points(overrides, source, params))
        except BaseException:
            _remove(sweep.folder, missing)
            raise
        rows = _run(purpose, sweep, planned)
    return exit_code(rows)


def exit_code(rows: Sequence[Row]) -> int:
    """Return the exit code of a sweep: an infeasible point is a result, one cut short by a signal is none."""
    left = [row.status for row in rows if row.status not in GOOD]
    return 0 if all(status is RowStatus.PREEMPTED for status in left) else 1


def _plan(purpose: Purpose, sweep: SweepConfiguration, points: Sequence[SweepPoint]) -> list[PlannedPoint]:
    planned = plan_points(
        points,
        purpose=purpose,
        loader=sweep.hydra.config_loader,
        master=sweep.master,
        learned=sweep.folder / _LEARNED,
        with_fingerprints=sweep.spec.resume and purpose is Purpose.TRAIN,
    )
    infeasible = [entry.point.number for entry in planned if entry.infeasible]
    without = f"; infeasible: {', '.join(map(str, infeasible))}" if infeasible else ""
    points_are = "point is" if len(planned) == 1 else "points are"
    print(f"{len(planned)} {points_are} checked and planned{without}", flush=True)
    return planned


def _run(purpose: Purpose, sweep: SweepConfiguration, planned: Sequence[PlannedPoint]) -> list[Row]:
    run = SweepRun(purpose, sweep, planned)
    try:
        rows = run.run()
    finally:
        shutil.rmtree(sweep.folder / _LEARNED, ignore_errors=True)
        for entry in planned:
            forget_pointer(entry.folder)
    write_csv(purpose, rows, sweep.folder)
    chart = write_chart(purpose, rows, sweep.folder)
    sys.stderr.flush()
    print_table(purpose, rows, sweep.folder)
    print(f"sweep folder: {sweep.folder} ({CSV}, {chart.name})", flush=True)
    return rows


def _make(folder: Path) -> list[Path]:
    """Make the sweep's folder and return the folders that were not there before, innermost first.

    Raises:
        ConfigError: It cannot be made or written.
    """
    missing = list(takewhile(lambda path: not path.exists(), (folder, *folder.parents)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{CSV}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        problem = f"'{folder}' cannot be written: {error.strerror}"
        raise ConfigError([Finding(_KEY, problem, "name another folder")]) from None
    return missing


def _remove(folder: Path, made: Sequence[Path]) -> None:
    """Leave nothing of a sweep that was not started; what was there before stays."""
    shutil.rmtree(folder / _LEARNED, ignore_errors=True)
    if folder in made:
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        for path in made[1:]:
            path.rmdir()
