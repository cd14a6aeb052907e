"""A configuration under construction: takes values one by one and says what is wrong with each."""

from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from neo.as_typed import as_typed, quoted
from neo.config.schema import (
    NOT_BUILT_KEYS,
    NeoConfig,
    below_free_mapping,
    in_words,
    new_config,
    schema_types,
    takes_bool,
)
from neo.errors import NOT_BUILT, Finding, nearest

TARGET = "_target_"
_HYDRA_INTERPOLATION = "${hydra"
_NOT_FOR_US = {
    "accumulate_grad_batches": "accumulation is refused: the sparse optimizers update at every batch, so the result "
    "would differ from that of the larger batch",
    "gradient_clip_val": "clipping is refused: the fused sparse update is done before a gradient norm is known",
}
_INSTEAD = {
    "accumulate_grad_batches": "raise data.global_batch_size",
    "gradient_clip_val": "lower optim.sparse.lr and optim.dense.lr",
}
_NOTHING_ASKED: Mapping[str, tuple[object, ...]] = {
    "accumulate_grad_batches": (1, None),
    "gradient_clip_val": (0, None),
}
"""Values that ask for no accumulation and no clipping."""
_ALIASES = {
    "gradient_accumulation_steps": "accumulate_grad_batches",
    "accumulation_steps": "accumulate_grad_batches",
    "gradient_clip_algorithm": "gradient_clip_val",
    "gradient_clipping": "gradient_clip_val",
    "max_gradient": "gradient_clip_val",
    "max_grad_norm": "gradient_clip_val",
    "clip_grad_norm": "gradient_clip_val",
}


class Draft:
    """The schema with its defaults, and the values assigned so far. Bad values leave the default in place."""

    def __init__(self) -> None:
        self._types = schema_types()
        self._config = new_config()

    def assign(self, key: str, value: Any, *, source: str = "") -> list[Finding]:
        """Set ``key`` (a mapping is walked) and return what is wrong.

        Args:
            key: Dotted key; empty for the root.
            value: A plain value, list or mapping.
            source: Where it was written, if not on the command line: ``hardware/acme.yaml``.
        """
        inside_free = below_free_mapping(key)
        is_group = key == "" or is_dataclass(self._types.get(key))
        if is_group and isinstance(value, Mapping):
            prefix = f"{key}." if key else ""
            return [
                finding
                for name, item in value.items()
                for finding in self.assign(prefix + str(name), item, source=source)
            ]
        if (place := _target_place(key, value)) is not None:
            return [_located(_target_finding(place), source)]
        if not inside_free and not is_group and key not in self._types:
            return [_located(unknown_key(key, self._types, given=value), source)]
        if is_group:
            return [_located(_group_finding(key, value), source)]
        return [_located(finding, source) for finding in self._set(key, value, free=inside_free)]

    def _set(self, key: str, value: Any, *, free: bool) -> list[Finding]:
        if isinstance(value, str) and _HYDRA_INTERPOLATION in value:
            return []  # Only Hydra's running job can resolve it; ``resolve`` checks the outcome then.
        if value == "???":
            return [Finding(key, "has no value ('???')", f"write {key}=VALUE")]
        try:
            OmegaConf.update(self._config, key, self._as_text(key, value), merge=True, force_add=free)
        except (OmegaConfBaseException, OverflowError):
            expected = in_words(self._types.get(key, Any))
            return [Finding(key, f"{quoted(value)} is not {expected}")]
        return []

    def _as_text(self, key: str, value: Any) -> Any:
        """Return true and false as they are typed where text is wanted: OmegaConf would write True and False."""
        return as_typed(value) if isinstance(value, bool) and not takes_bool(self._types.get(key, Any)) else value

    def reset(self, group: str) -> None:
        """Give every key of a group its default."""
        self._config[group] = OmegaConf.structured(NeoConfig)[group]

    def finish(self) -> tuple[NeoConfig, list[Finding]]:
        """Resolve interpolations; return the typed configuration and what could not be resolved."""
        findings = []
        for key in list(self._types):
            if OmegaConf.is_interpolation(*self._node(key)):
                try:
                    value = OmegaConf.select(self._config, key)
                    OmegaConf.update(self._config, key, value)
                except OmegaConfBaseException as error:
                    findings.append(Finding(key, f"cannot be resolved: {str(error).splitlines()[0]}"))
                    OmegaConf.update(self._config, key, OmegaConf.select(new_config(), key))
        return cast(NeoConfig, OmegaConf.to_object(self._config)), findings

    def _node(self, key: str) -> tuple[DictConfig, str]:
        parent, _, name = key.rpartition(".")
        return (OmegaConf.select(self._config, parent) if parent else self._config), name


def unknown_key(key: str, known: Mapping[str, Any], *, given: Any) -> Finding:
    """Return the finding for a key that is not in the schema: the nearest full key, and its neighbours."""
    parent, _, name = key.rpartition(".")
    if key.partition(".")[0] in NOT_BUILT_KEYS:
        return Finding(key, NOT_BUILT, "leave it out")
    refused = _ALIASES.get(name, name)
    if given in _NOTHING_ASKED.get(refused, ()) and not isinstance(given, bool):
        return Finding(key, f"{as_typed(given)} is what neo always does, and there is no such key", "leave the key out")
    if refused in _NOT_FOR_US:
        return Finding(key, _NOT_FOR_US[refused], _INSTEAD[refused])
    while parent and parent not in known:  # A group that is misspelled: what there is in its place.
        parent, _, name = parent.rpartition(".")
    same_name = [other for other in known if other.rpartition(".")[2] == name and not is_dataclass(known[other])]
    siblings = [other.rpartition(".")[2] for other in known if other.rpartition(".")[0] == parent]
    end = key[len(f"{parent}.{name}".lstrip(".")) :]  # of a key below a misspelled group
    near = [f"{parent}.{other}".lstrip(".") for other in nearest(name, siblings, cutoff=0.6)]
    near = [f"{other}{end}" if f"{other}{end}" in known else other for other in near]
    near = near or same_name[:3] or nearest(key, known, cutoff=0.75)
    fix = "did you mean " + " or ".join(f"'{other}'" for other in near) + "?" if near else ""
    allowed = siblings or [other for other in known if "." not in other]
    where = f"Keys of {parent}" if siblings and parent else "Groups and keys"
    fix = f"{fix} {where}: {', '.join(sorted(allowed))}".strip()
    return Finding(key, f"no such key (given {quoted(given)})", fix)


def _located(finding: Finding, source: str) -> Finding:
    return Finding(f"{source}: {finding.key}", finding.problem, finding.fix) if source else finding


def _target_place(key: str, value: Any) -> str | None:
    """Return where ``_target_`` stands in a key or in the value given to it, or None."""
    if TARGET in key.split("."):
        return key
    items: Iterable[tuple[object, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    places = (_target_place(f"{key}.{name}", item) for name, item in items)
    return next((place for place in places if place is not None), None)


def _target_finding(place: str) -> Finding:
    return Finding(
        place,
        "a configuration cannot name Python objects",
        "choose by name; an installed package adds names through the entry point neo.plugins",
    )


def _group_finding(key: str, value: Any) -> Finding:
    return Finding(key, f"{quoted(value)} is not a mapping", f"'{key}' is a group: set its keys, like {key}.KEY=VALUE")
