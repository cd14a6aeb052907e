"""The configuration of a checkpoint with what may be changed about it, through the checks that training goes through.

A checkpoint decides the model, its tables and how samples are encoded. Free are the data set that is read, the
machine, and how the tables are laid over it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from neo.config.composition import ConfigSource, ConfigTree
from neo.config.devices import execution_device, fits_here, num_processes
from neo.config.draft import Draft
from neo.config.overrides import CheckedOverrides, check_overrides, parse
from neo.config.purpose import Purpose
from neo.config.resolve import find_mistakes, to_specs
from neo.config.run_config import RunConfig
from neo.config.schema import GROUPS, NeoConfig, below_free_mapping, schema_types
from neo.data.spec import DataSpec
from neo.errors import CheckpointError, ConfigError, Finding
from neo.planner.spec import ShardingConfig, ShardingMode
from neo.strategy.spec import Accelerator

RESOLVED = "resolved.yaml"
PLAN = "plan.json"
_LABEL, _PATH, _VAL_PATH = "data.label", "data.path", "data.val_path"
_LIMIT_VAL = "trainer.limit_val_batches"
_OF_TRAINING = ("strict", "logger", "callbacks", "sweep", "checkpoint")  # what a run wished for its training alone
_FREE_GROUPS = ("hardware", "sharding", "ops", "comms", "launch")
_FREE_KEYS = (
    "seed",
    "strict",
    "data.name",
    _VAL_PATH,
    "data.global_batch_size",
    "data.limit_samples",
    "data.val_samples",
    "data.num_workers",
    "trainer.devices",
    "trainer.accelerator",
    "trainer.matmul_precision",
    "trainer.precision",
    "trainer.progress_bar",
    _LIMIT_VAL,
)
_REASONS = {
    "model": "the checkpoint holds this model's tables and dense part, and no other",
    "optim": "nothing is trained here",
    "data": "the checkpoint's model knows samples in this form only",
}
_FIXES = {
    _PATH: f"write {_VAL_PATH}=FILE: those samples are read",
    "data.num_samples": "write data.val_samples: those are read",
    _LABEL: "rename the column in the file",
}
_ONLY_TRAINING = (_PATH, "data.num_samples")


class Use(StrEnum):
    """What a checkpoint is opened for: metrics; scores, for which samples need no label; its weights alone."""

    EVAL = "eval"
    PREDICT = "predict"
    EXPORT = "export"


@dataclass(frozen=True)
class Opened:
    """The configuration of a checkpoint as it is used here.

    Attributes:
        config: All of it, to be written as ``resolved.yaml``.
        run: The same as frozen specs.
        num_processes: Workers to start.
        notes: What is not as in the run that wrote the checkpoint, in words.
    """

    config: DictConfig
    run: RunConfig
    num_processes: int
    notes: tuple[str, ...]


def open_config(checkpoint: Path, overrides: Sequence[str], *, use: Use, world_size: int) -> Opened:
    """Return the configuration of a checkpoint with overrides.

    Args:
        checkpoint: A complete checkpoint.
        overrides: As typed: ``data.val_path=other.parquet``, ``sharding=row_wise``.
        use: What it is opened for.
        world_size: Ranks that wrote it; as many are started if this host has room for them and nothing else is asked.

    Raises:
        ConfigError: An override is wrong, or of what the checkpoint decides; carries every finding.
        CheckpointError: The checkpoint keeps no configuration, or a damaged one.
    """
    parsed, findings = parse(overrides)
    tree = ConfigTree(ConfigSource())
    checked = check_overrides(parsed, tree)
    draft = Draft()
    base = draft.assign("", _as_it_was(checkpoint), source=str(checkpoint / RESOLVED))
    findings += [*checked.findings, *base]
    findings += [Finding(o.key_or_group, "is Hydra's, and Hydra does not run here", "leave it out")
                 for o in parsed if o.is_hydra_override()]  # fmt: skip
    changed = {override.key_or_group for override in (*checked.choices, *checked.values)}
    findings += _choose(checked, tree, draft)
    for override in checked.values:
        refused = _refusal(override.key_or_group, use)
        findings += [refused] if refused else draft.assign(override.key_or_group, override.value())
    typed, unresolved = draft.finish()
    findings += unresolved + _settle_data(typed, use)
    notes: list[str] = []
    if not findings:
        notes += _settle_world(typed, world_size, changed)
        notes += _settle_sharding(typed, checkpoint, changed)
    findings += _without_training(find_mistakes(typed, Purpose.TRAIN), use)
    if findings:
        raise ConfigError(list(dict.fromkeys(findings)))
    processes = num_processes(typed.trainer.to_spec().devices, Accelerator(typed.trainer.accelerator))
    return Opened(OmegaConf.structured(typed), _specs(typed, use), processes, tuple(notes))


def read_opened(path: Path, *, use: Use) -> RunConfig:
    """Read the ``resolved.yaml`` that an ``Opened`` was written to, as each worker does.

    Raises:
        ConfigError: It is wrong.
    """
    draft = Draft()
    findings = draft.assign("", OmegaConf.to_container(OmegaConf.load(path), resolve=True))
    typed, unresolved = draft.finish()
    findings += unresolved + _without_training(find_mistakes(typed, None), use)
    if findings:
        raise ConfigError(findings)
    return _specs(typed, use)


def _as_it_was(checkpoint: Path) -> dict[str, Any]:
    """Return the configuration that a checkpoint keeps, without what is about training samples alone."""
    path = checkpoint / RESOLVED
    try:
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except OSError as error:
        fix = "neo train writes it; a module of your own is evaluated with Trainer.validate(..., ckpt_path=...)"
        raise CheckpointError(f"'{path}' cannot be read: {error.strerror or error}; {fix}") from None
    except (OmegaConfBaseException, yaml.YAMLError, ValueError) as error:
        raise CheckpointError(f"'{path}' is damaged: {(str(error).splitlines() or [''])[0]}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"'{path}' is damaged: it is not a mapping of groups")
    kept = {key: value for key, value in cast(dict[str, Any], content).items() if key not in _OF_TRAINING}
    data, trainer = kept.get("data"), kept.get("trainer")
    if isinstance(data, dict):
        data |= {"path": None, "limit_samples": None}
    if isinstance(trainer, dict):
        trainer["limit_val_batches"] = None
    return kept


def _choose(checked: CheckedOverrides, tree: ConfigTree, draft: Draft) -> list[Finding]:
    """Take whole groups from their files (``sharding=row_wise``); the checkpoint's own values of such a group go."""
    findings, chosen = [], []
    for choice in checked.choices:
        group = choice.key_or_group
        if group in _FREE_GROUPS:
            chosen.append(choice)
        elif group in GROUPS:
            findings.append(Finding(group, f"'{choice.input_line}': {_reason(group)}", _fix(group)))
        elif not choice.is_hydra_override():
            findings.append(Finding(group, "a recipe is trained; a checkpoint is used as it is", "leave it out"))
    layers, unreadable = tree.layers(chosen) if chosen else ([], [])
    names = {choice.key_or_group for choice in chosen}
    for name in names:
        draft.reset(name)
    for layer in layers:
        if layer.package in names:
            findings += draft.assign(layer.package, layer.content, source=layer.name)
    return findings + unreadable


def _reason(group: str) -> str:
    return _REASONS.get(group, "nothing is trained here")


def _refusal(key: str, use: Use) -> Finding | None:
    """Return why a key cannot be changed, None if it can or is not known at all."""
    if key == _LIMIT_VAL and use is not Use.EVAL:
        return Finding(key, "has no effect: nothing is validated here", "write data.limit_samples=COUNT")
    group = key.partition(".")[0]
    known = key in schema_types() or below_free_mapping(key)
    if not known or key in _FREE_KEYS or group in _FREE_GROUPS:
        return None
    reason = "nothing is trained here" if key in _ONLY_TRAINING else _reason(group)
    return Finding(key, f"cannot be changed for a checkpoint: {reason}", _fix(key))


def _fix(key: str) -> str:
    group = key.partition(".")[0]
    if group == "data" and key not in _FIXES:
        free = [free for free in _FREE_KEYS if free.startswith("data.")]
        return f"leave it out; free are {', '.join(free)}"
    return _FIXES.get(key, "leave it out")


def _settle_data(typed: NeoConfig, use: Use) -> list[Finding]:
    """Let the samples that are read be the only ones there are."""
    data = typed.data
    if data.name == "synthetic" or use is Use.EXPORT:
        return []
    if data.val_path is None:
        return [Finding(_VAL_PATH, "is not set: the run had no validation data", f"write {_VAL_PATH}=FILE_OR_FOLDER")]
    data.path = data.val_path
    return []


def _settle_world(typed: NeoConfig, world_size: int, changed: set[str]) -> list[str]:
    """Take as many processes as wrote the checkpoint if they fit here and nothing else is asked."""
    trainer = typed.trainer
    trainer.num_nodes = 1
    asked = Accelerator(trainer.accelerator) if trainer.accelerator in list(Accelerator) else Accelerator.AUTO
    if "trainer.accelerator" not in changed and not fits_here(1, asked):
        trainer.accelerator, asked = Accelerator.AUTO.value, Accelerator.AUTO
    if "trainer.devices" in changed:
        return []
    if fits_here(world_size, asked):
        trainer.devices = world_size
        return []
    trainer.devices = num_processes(None, asked)
    where = execution_device(asked).value
    return [f"{world_size} processes wrote the checkpoint; {trainer.devices} ({where}) are started here"]


def _settle_sharding(typed: NeoConfig, checkpoint: Path, changed: set[str]) -> list[str]:
    """Take the checkpoint's plan where it is for as many ranks and nothing is asked that would change it."""
    wishes = [key for key in changed if key.partition(".")[0] in ("sharding", "hardware", "ops")]
    plan = checkpoint / PLAN
    if not wishes and plan.is_file() and typed.trainer.devices == _planned_world(plan):
        typed.sharding = ShardingConfig(type=ShardingMode.FILE.value, path=str(plan))
        return []
    if not any(key.partition(".")[0] == "sharding" for key in changed):
        if typed.sharding.type == ShardingMode.FILE:
            typed.sharding = ShardingConfig()
        typed.sharding.column_wise_semantics = None
    return []


def _planned_world(plan: Path) -> int | None:
    content = OmegaConf.load(plan)  # JSON is YAML
    size = content.get("world_size") if isinstance(content, DictConfig) else None
    return size if isinstance(size, int) else None


def _without_training(findings: Sequence[Finding], use: Use) -> list[Finding]:
    """Drop what is only said of training samples, and of labels or of all samples where none are read."""
    if use is Use.EXPORT:
        return [finding for finding in findings if not finding.key.startswith("data.")]
    dropped = (_PATH, _LABEL) if use is Use.PREDICT else (_PATH,)
    return [finding for finding in findings if finding.key not in dropped]


def _specs(typed: NeoConfig, use: Use) -> RunConfig:
    run = to_specs(typed)
    data: DataSpec = run.data if use is Use.EVAL else replace(run.data, label=None)
    return replace(run, data=data)
