"""The root of the configuration: joins the config dataclass of every group, and knows every key."""

import copy
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any

from omegaconf import DictConfig, OmegaConf

from neo.checkpoint.spec import CheckpointConfig
from neo.comms.spec import CommsConfig
from neo.data.spec import DataConfig
from neo.hardware.spec import HardwareConfig
from neo.launch.spec import LaunchConfig, SweepConfig
from neo.models.spec import ModelConfig
from neo.ops.spec import OpsConfig
from neo.optim.spec import OptimConfig
from neo.planner.overrides import OPTIMIZERS, TYPES
from neo.planner.spec import ShardingConfig
from neo.strategy.spec import CallbacksConfig, LoggerConfig, TrainerConfig


@dataclass
class NeoConfig:
    """The schema of a run: one field per group, the seed, and whether anything may be replaced.

    Attributes:
        seed: What initial weights, generated data, shuffling and random rounding depend on; 0 to 2^63 - 1.
        strict: Whether a kernel, tier or codec that would be replaced by another is an error.
    """

    seed: int = 0
    strict: bool = False
    hardware: HardwareConfig = field(default_factory=HardwareConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    sharding: ShardingConfig = field(default_factory=ShardingConfig)
    ops: OpsConfig = field(default_factory=OpsConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    comms: CommsConfig = field(default_factory=CommsConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    callbacks: CallbacksConfig = field(default_factory=CallbacksConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    sweep: SweepConfig = field(default_factory=SweepConfig)


GROUPS = tuple(entry.name for entry in fields(NeoConfig) if entry.name not in ("seed", "strict"))
RECIPES = "recipes"
_FREE_MAPPINGS = (TYPES, OPTIMIZERS, "logger.options", "callbacks.options")


def below_free_mapping(key: str) -> bool:
    """Return whether ``key`` is or lies below a mapping with free names; Hydra adds to one with ``++``."""
    return any(key == free or key.startswith(f"{free}.") for free in _FREE_MAPPINGS)


NOT_BUILT_KEYS = ("explain",)
"""First parts of keys that are planned and not there yet."""

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Any: "anything"}
_LISTED = {int: "whole numbers like [1,2]", float: "numbers like [0.5,2]", str: "names like [a,b]"}


@cache
def _schema() -> DictConfig:
    return typing.cast(DictConfig, OmegaConf.structured(NeoConfig))


def new_config() -> DictConfig:
    """Return the schema with its defaults; a copy, which takes a tenth of the time of making one."""
    return copy.deepcopy(_schema())


def schema_types() -> dict[str, Any]:
    """Return the type of every key, groups and sub-groups included, by dotted key."""
    return dict(_walk(NeoConfig, ""))


def _walk(schema: type, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, hint in typing.get_type_hints(schema).items():
        yield prefix + name, hint
        if is_dataclass(hint):
            yield from _walk(typing.cast(type, hint), f"{prefix}{name}.")


def takes_bool(hint: Any) -> bool:
    """Return whether true and false are values of this type; what a free mapping takes is not known."""
    return hint is Any or bool in (hint, *typing.get_args(hint))


def in_words(hint: Any) -> str:
    """Return a type in a person's words: ``a list of whole numbers like [1,2], or null``."""
    if hint in _WORDS:
        return _WORDS[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if set(arguments) == {int, str}:
            return "'auto' or a whole number"
        if set(arguments) == {int, float, type(None)}:
            return "a whole number (a count), a number with a point (a part), or null"
        words = " or ".join(in_words(argument) for argument in arguments if argument is not type(None))
        return f"{words}, or null" if type(None) in arguments else words
    if origin is list:
        element = next(argument for argument in (*typing.get_args(arguments[0]), arguments[0]) if argument in _LISTED)
        return f"a list of {_LISTED[element]}"
    return "a mapping like {name: value}"
