"""The configuration files of a run, read through Hydra's search path, mistakes collected instead of raised."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra._internal.defaults_list import create_defaults_list
from hydra._internal.utils import create_automatic_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.default_element import GroupDefault, InputDefault
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigLoadError
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from neo.config.schema import GROUPS, RECIPES
from neo.config.store import CONFIG_NAME, CONFIG_PATH
from neo.errors import Finding, did_you_mean

_SCHEMA_SCHEME = "structured://"


@dataclass(frozen=True)
class ConfigSource:
    """Where the files of a run come from, in the words of Hydra's flags.

    Attributes:
        config_name: ``--config-name``.
        config_path: ``--config-path``.
        config_dir: ``--config-dir``: a folder whose groups go before neo's own.
        search_paths: ``hydra.searchpath``.
    """

    config_name: str = CONFIG_NAME
    config_path: str = CONFIG_PATH
    config_dir: str | None = None
    search_paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layer:
    """What one file adds: its content, to be merged at ``package`` (dotted; empty for the root)."""

    name: str
    package: str
    content: Any = field(compare=False)


class ConfigTree:
    """Groups, choices and layers of one ``ConfigSource``."""

    def __init__(self, source: ConfigSource) -> None:
        self.source = source
        self._layers: dict[tuple[str, ...], tuple[list[Layer], list[Finding]]] = {}

    @cached_property
    def loader(self) -> ConfigLoaderImpl:
        """Hydra's reader of this search path."""
        path = create_automatic_config_search_path(None, "neo.cli.main", self.source.config_path)
        if self.source.config_dir is not None:
            folder = f"file://{os.path.abspath(self.source.config_dir)}"
            path.prepend(provider="command-line", path=folder, anchor=SearchPathQuery(provider="schema"))
        for extra in self.source.search_paths:
            path.append(provider="hydra.searchpath in command-line", path=extra)
        return ConfigLoaderImpl(path)

    @cached_property
    def _repository(self) -> CachingConfigRepository:
        return CachingConfigRepository(self.loader.repository)

    def choices(self, group: str) -> list[str]:
        """Return the names that ``group=NAME`` can take; empty if there is no such group."""
        if not self._repository.group_exists(group):
            return []
        return list(self._repository.get_group_options(group, results_filter=ObjectType.CONFIG))

    def unreadable(self, file: str) -> Finding | None:
        """Return what is wrong with the text of ``GROUP/NAME``, or None."""
        try:
            loaded = self._repository.load_config(file)
        except (yaml.YAMLError, OmegaConfBaseException, OSError, ConfigLoadError, UnicodeDecodeError) as error:
            return Finding(_shown_file(file), f"cannot be read: {_yaml_problem(error)}")
        except (ValueError, AttributeError, TypeError) as error:
            return Finding(_shown_file(file), f"cannot be read: {error}", "a configuration file is a mapping of keys")
        if loaded is not None and not OmegaConf.is_dict(loaded.config):
            return Finding(_shown_file(file), "is not a mapping of keys", "write KEY: VALUE lines")
        return None

    def recipe(self, name: str) -> tuple[Layer, list[Finding]]:
        """Return what a recipe adds by itself, whatever else it chooses, and what is wrong with its form.

        Args:
            name: A recipe that can be read.
        """
        loaded = self._repository.load_config(f"{RECIPES}/{name}")
        file = f"{RECIPES}/{name}.yaml"
        if loaded is None:
            return Layer(file, "", {}), []
        findings = []
        if loaded.header.get("package") != "_global_":
            problem = f"has no package line, so its keys would go below '{RECIPES}'"
            findings.append(Finding(file, problem, "write '# @package _global_' as its first line"))
        for default in loaded.defaults_list or ():
            findings += self._wrong_default(file, default)
        content = OmegaConf.to_container(loaded.config, resolve=False)
        return Layer(file, "", content), findings

    def _wrong_default(self, file: str, default: InputDefault) -> list[Finding]:
        """Return what is wrong with one entry of a recipe's defaults list, looked at by itself."""
        if default.is_self() or not isinstance(default, GroupDefault) or not isinstance(default.value, str):
            return []
        group, place = (default.group or "").lstrip("/"), f"{file}: defaults"
        if group in GROUPS and not (default.group or "").startswith("/"):
            problem = f"'{group}' is looked for below '{RECIPES}'"
            return [Finding(place, problem, f"write override /{group}: {default.value}")]
        choices = self.choices(group)
        if not choices:
            problem = f"'{default.group}' is not a group"
            return [Finding(place, problem, did_you_mean(group, (*GROUPS, RECIPES)))]
        if not default.override and group in GROUPS:
            return [Finding(place, f"'{group}: {default.value}' is chosen already", f"write override /{group}: NAME")]
        if default.value not in choices:
            problem = f"'{default.value}' is not a choice of {group}"
            return [Finding(place, problem, did_you_mean(default.value, choices))]
        return []

    def _missing_main(self) -> Finding | None:
        name, path = self.source.config_name, self.source.config_path
        if self._repository.config_exists(name):
            return None
        if path != CONFIG_PATH:
            fix = "leave it out; a folder of your own files is added with --config-dir"
            return Finding("--config-path", f"'{path}' has no {_shown_file(name)}", fix)
        return Finding("--config-name", f"'{name}' is not a configuration file", f"leave it out, or use {CONFIG_NAME}")

    def layers(self, choices: Sequence[Override]) -> tuple[list[Layer], list[Finding]]:
        """Return what each file of the run adds, in order of rising precedence, schema and Hydra's own left out.

        Args:
            choices: Overrides that choose in groups (``sharding=auto``, ``+recipes=NAME``, ``hydra/…``).
        """
        key = tuple(override.input_line or "" for override in choices)
        if key not in self._layers:  # Most points of a sweep choose the same files.
            self._layers[key] = self._read_layers(choices)
        layers, findings = self._layers[key]
        return list(layers), list(findings)

    def _read_layers(self, choices: Iterable[Override]) -> tuple[list[Layer], list[Finding]]:
        main = self._missing_main() or self.unreadable(self.source.config_name)
        if main is not None:
            return [], [main]
        try:
            defaults = create_defaults_list(
                repo=self._repository,
                config_name=self.source.config_name,
                overrides_list=list(choices),
                prepend_hydra=True,
                skip_missing=False,
            ).defaults
        except (HydraException, yaml.YAMLError, OmegaConfBaseException, ConfigLoadError, ValueError) as error:
            return [], [Finding("defaults list", _in_one_line(error))]
        layers, findings = [], []
        for default in defaults:
            if default.config_path is None or (default.package or "").split(".")[0] == "hydra":
                continue
            if (problem := self.unreadable(default.config_path)) is not None:
                findings.append(problem)
                continue
            loaded = self._repository.load_config(default.config_path)
            if loaded is None or loaded.is_schema_source:
                continue
            content = OmegaConf.to_container(loaded.config, resolve=False)
            package = default.package if default.package not in (None, "_global_") else ""
            if isinstance(content, dict) and not package:
                content.pop("hydra", None)
            layers.append(Layer(_shown_file(default.config_path), package or "", content))
        return layers, findings


def missing_folders(source: ConfigSource) -> list[Finding]:
    """Return a finding if ``--config-dir`` is not a folder."""
    folder = source.config_dir
    if folder is None or Path(folder).is_dir():
        return []
    return [Finding("--config-dir", f"'{folder}' is not a folder")]


def _in_one_line(error: Exception) -> str:
    """Return what Hydra says without its search path, which names folders that nobody asked about."""
    return " ".join(str(error).partition("Config search path")[0].split())


def _shown_file(name: str) -> str:
    return name if name.endswith(".yaml") else f"{name}.yaml"


def _yaml_problem(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark is not None else str(problem)


def names_of(choices: Sequence[Override]) -> list[str]:
    """Return ``GROUP/NAME`` of each override that chooses one file."""
    files = []
    for choice in choices:
        value = choice.value()
        names = value if isinstance(value, list) else [value]
        files += [f"{choice.key_or_group}/{name}" for name in names]
    return files
