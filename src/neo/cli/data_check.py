"""``neo data check PATH [key=value ...]``: findings, a table of every column, and the histogram file."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from neo.as_typed import as_typed
from neo.config.check import check_command_line
from neo.config.composition import ConfigSource
from neo.config.purpose import Purpose
from neo.config.resolve import resolve_content
from neo.config.run_config import RunConfig
from neo.config.store import CONFIG_NAME, register
from neo.data.diagnosis import DataFinding, Severity, diagnose, statistics_of
from neo.data.infer import infer_reader, infer_roles
from neo.data.spec import Encoding
from neo.data.statistics_file import DataStatistics, write_statistics
from neo.data.survey import Survey, survey
from neo.errors import ConfigError, Finding
from neo.limits import MAX_ROWS

_COLUMN_KEYS = ("data.dense", "data.categorical", "data.lists")
_PIPED_WIDTH = 120
_COLOURS = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def run_check(arguments: Sequence[str]) -> int:
    """Run the command.

    Returns:
        0 if nothing but notes was found, 1 for an error or a warning.

    Raises:
        ConfigError: A key or a column is wrong.
        DataError: There is nothing to read.
    """
    parser = argparse.ArgumentParser(prog="neo data check", description=__doc__)
    parser.add_argument("path", type=Path, help="a file, a folder or a glob pattern")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as in train.py: data.label=y, data=parquet")
    parser.add_argument("--out", type=Path, default=Path("data_statistics.json"), help="histogram file (%(default)s)")
    asked = parser.parse_intermixed_args(list(arguments))
    overrides = overrides_of(asked.path, asked.overrides)
    config = _read(overrides)
    console = Console(soft_wrap=True) if sys.stdout.isatty() else Console(soft_wrap=True, width=_PIPED_WIDTH)
    with _bar() as progress:
        found = survey(config.data, table_rows=_limits(config), progress=progress)
    rows = config.model.num_embeddings
    findings = diagnose(config.data, found, rows)
    statistics = statistics_of(found)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    write_statistics(asked.out, statistics)
    _print(console, config, found, statistics, findings)
    print(f"histogram file: {asked.out}")
    return int(any(finding.severity is not Severity.NOTE for finding in findings))


def overrides_of(path: Path, given: Sequence[str], *, tell: Callable[[str], None] = print) -> list[str]:
    """Return the overrides of a check: what is given, and before it what the files say where nothing is.

    Args:
        path: The files.
        given: The overrides as typed.
        tell: Called with a line about each column that can play no role.
    """
    values = {text.partition("=")[0]: text.partition("=")[2] for text in given}
    for key in ("data.path", "data.val_path"):
        if key in values:
            raise ConfigError([Finding(key, "is the PATH of this command", "remove it")])
    path = path.expanduser().absolute()
    reader = values.get("data") or infer_reader(path)
    added = [] if "data" in values else [f"data={reader}"]
    added.append(f"data.path={_quoted(str(path))}")
    if reader in ("parquet", "csv") and not any(key in values for key in _COLUMN_KEYS):
        roles = infer_roles(path, reader, label=values.get("data.label", "label").strip("'\""))
        if "data.label" not in values:
            added.append(f"data.label={_quoted(roles.label)}")
        for key, names in zip(_COLUMN_KEYS, (roles.dense, roles.categorical, roles.lists), strict=True):
            if names:
                added.append(f"{key}=[{','.join(map(_quoted, names))}]")
        for name, kind in roles.unused:
            tell(f"column '{name}' is left out: {kind} is neither a number nor an id")
    return [*added, *given]


def _quoted(text: str) -> str:
    escaped = text.replace("'", "\\'")
    return f"'{escaped}'"


def _read(overrides: Sequence[str]) -> RunConfig:
    """Return the checked configuration."""
    register()
    findings = check_command_line(overrides, ConfigSource(), purpose=Purpose.TRAIN, multirun=False)
    if findings:
        raise ConfigError(findings)
    with initialize_config_module("neo.conf", version_base="1.3"):
        composed = compose(CONFIG_NAME, overrides=list(overrides))
    config = resolve_content(OmegaConf.to_container(composed, resolve=True), purpose=None)
    if config.data.is_generated:
        raise ConfigError([Finding("data", "synthetic data is made on the fly", "name a reader of files")])
    return config


def _limits(config: RunConfig) -> list[int] | None:
    """Return how many ids each table takes, None where ids are not rows."""
    if config.data.encoding is not Encoding.IDENTITY:
        return None
    given = config.model.num_embeddings
    return [MAX_ROWS] * len(config.data.features) if given is None else list(given)


@contextmanager
def _bar() -> Iterator[Callable[[int, int | None], None]]:
    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TextColumn("samples"), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        task = progress.add_task("reading", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _print(
    console: Console, config: RunConfig, found: Survey, statistics: DataStatistics, findings: Sequence[DataFinding]
) -> None:
    data = config.data
    console.print(f"{found.num_samples:,} samples, label rate {found.labels.rate:.4f}, data={data.name}")
    for key in ("label", "dense", "categorical", "lists"):
        value = getattr(data, key)
        if value and data.name != "criteo":
            shown = as_typed(list(value)) if isinstance(value, tuple) else value
            console.print(f"  data.{key}={shown}", markup=False, highlight=False)
    if found.dense:
        console.print(_dense_table(found))
    console.print(_sparse_table(statistics, found))
    for finding in findings:
        console.print(str(finding), style=_COLOURS[finding.severity], markup=False, highlight=False)
    if not findings:
        console.print("nothing was found")


def _dense_table(found: Survey) -> Table:
    table = Table(
        "dense", *(_right(name) for name in ("missing", "smallest", "largest", "mean", "deviation")), box=SIMPLE_HEAD
    )
    for name, facts in found.dense.items():
        share = f"{facts.missing / max(1, found.num_samples):.1%}"
        deviation = 0.0 if facts.smallest == facts.largest else facts.moments.deviation
        numbers = (facts.smallest, facts.largest, facts.moments.mean, deviation)
        holds_none = facts.smallest > facts.largest
        table.add_row(name, share, *("" if holds_none else f"{number:.6g}" for number in numbers))
    return table


def _sparse_table(statistics: DataStatistics, found: Survey) -> Table:
    titles = ("per sample", "missing", "distinct", "top id", "top 1,000", "Zipf", "smallest", "largest")
    table = Table("sparse", *(_right(name) for name in titles), box=SIMPLE_HEAD, pad_edge=False)
    for feature in statistics.features:
        facts = found.sparse[feature.name]
        total = feature.num_ids + feature.num_missing
        table.add_row(
            feature.name,
            f"{feature.mean_ids_per_sample:.2f}",
            f"{feature.num_missing / max(1, total):.1%}",
            f"{'' if feature.is_exact else '~'}{feature.num_distinct:,}",
            f"{feature.share_of_top(1):.1%}",
            f"{feature.share_of_top(1000):.1%}",
            "" if feature.zipf_exponent is None else f"{feature.zipf_exponent:.2f}",
            "" if facts.smallest is None else str(facts.smallest),
            "" if facts.largest is None else str(facts.largest),
        )
    return table


def _right(title: str) -> Column:
    return Column(title, justify="right", no_wrap=True)
