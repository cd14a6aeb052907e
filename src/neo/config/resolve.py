"""From Hydra's configuration to the frozen ``RunConfig``; the last functions that see a DictConfig."""

from collections.abc import Mapping
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from neo.config.cross_checks import cross_findings
from neo.config.draft import Draft
from neo.config.purpose import Purpose
from neo.config.run_config import RunConfig
from neo.config.schema import GROUPS, NeoConfig
from neo.errors import ConfigError, Finding

_WITH_NULL_DEFAULTS = ("model", "data")


def resolve(config: DictConfig, *, purpose: Purpose = Purpose.TRAIN, num_started: int | None = None) -> RunConfig:
    """Return the frozen form of a composed configuration.

    Args:
        config: The configuration.
        purpose: What it is read for.
        num_started: Ranks that something else has started; None if this command starts the workers.

    Raises:
        ConfigError: Something is wrong; carries every finding of every group.
    """
    try:
        content = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None) or "configuration"
        raise ConfigError([Finding(key, f"cannot be resolved: {str(error).splitlines()[0]}")]) from error
    return resolve_content(content, purpose=purpose, num_started=num_started)


def resolve_content(content: Any, *, purpose: Purpose | None, num_started: int | None = None) -> RunConfig:
    """Return the frozen form of a configuration given as plain mappings.

    Args:
        content: One mapping per group.
        purpose: What it is read for; None skips what two groups together can get wrong on a machine.
        num_started: As in ``resolve``.

    Raises:
        ConfigError: As ``resolve``.
    """
    if not isinstance(content, Mapping):
        raise ConfigError([Finding("configuration", f"is a {type(content).__name__}, not a mapping of groups")])
    draft = Draft()
    findings = draft.assign("", content)
    typed, unresolved = draft.finish()
    findings += unresolved + find_mistakes(typed, purpose, num_started)
    if findings:
        raise ConfigError(findings)
    return to_specs(typed)


def read_resolved(path: Path) -> RunConfig:
    """Read the ``resolved.yaml`` of a training run, as each of its workers does.

    The command that wrote it has checked it against the host.

    Raises:
        ConfigError: As ``resolve``.
    """
    return resolve_content(OmegaConf.to_container(OmegaConf.load(path), resolve=True), purpose=None)


def write_resolved(path: Path, config: DictConfig, settled: Mapping[str, Any]) -> None:
    """Write a composed configuration: every interpolation resolved, every default that has an effect written out.

    A null that stays means something: not limited, not known, taken from the data, or without effect here.

    Args:
        path: The file.
        config: The configuration.
        settled: Values to write in place of ``auto``, by dotted key.
    """
    plain = OmegaConf.to_container(config, resolve=True)
    content = OmegaConf.create(plain)
    draft = Draft()
    draft.assign("", plain)
    typed, _ = draft.finish()
    for group in _WITH_NULL_DEFAULTS:
        for key, value in settled_defaults(getattr(typed, group)).items():
            OmegaConf.update(content, f"{group}.{key}", value)
    for key, value in settled.items():
        OmegaConf.update(content, key, value)
    path.write_text(OmegaConf.to_yaml(content), encoding="utf-8")


def settled_defaults(config: Any) -> dict[str, Any]:
    """Return what the nulls of a valid group stand for, where writing it out changes nothing.

    Args:
        config: A group whose ``None`` means "the default of what was chosen".
    """
    spec, settled = config.to_spec(), {}
    for entry in fields(config):
        value = getattr(spec, entry.name, None)
        if getattr(config, entry.name) is not None or value is None:
            continue
        written = _plain(value)
        explicit = replace(config, **{entry.name: written})
        if not explicit.validate() and explicit.to_spec() == spec:
            settled[entry.name] = written
    return settled


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, Enum) else str(value) if isinstance(value, Path) else value


def find_mistakes(config: NeoConfig, purpose: Purpose | None, num_started: int | None = None) -> list[Finding]:
    """Return the findings of every group, keys in full, and, where those are fine, of the groups together.

    Args:
        config: The typed configuration.
        purpose: What it is read for; None looks at each group by itself only.
        num_started: As in ``resolve``.
    """
    findings = []
    if not 0 <= config.seed < 2**63:
        findings.append(Finding("seed", f"{config.seed} is outside [0, 2^63)"))
    for group in GROUPS:
        findings += [finding.under(group) for finding in getattr(config, group).validate()]
    spoiled = {finding.key.split(".")[0] for finding in findings}
    if purpose is None:
        return findings
    return findings + cross_findings(config, purpose, spoiled=spoiled, num_started=num_started)


def to_specs(config: NeoConfig) -> RunConfig:
    """Return the frozen form of a valid configuration."""
    return RunConfig(
        seed=config.seed,
        strict=config.strict,
        hardware=config.hardware.to_spec(),
        data=config.data.to_spec(),
        model=config.model.to_spec(),
        sharding=config.sharding.to_spec(),
        ops=config.ops.to_spec(),
        optim=config.optim.to_spec(),
        comms=config.comms.to_spec(),
        trainer=config.trainer.to_spec(),
        logger=config.logger.to_spec(),
        callbacks=config.callbacks.to_spec(),
        checkpoint=config.checkpoint.to_spec(),
        launch=config.launch.to_spec(),
    )
