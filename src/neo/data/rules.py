"""The rules that ``data.*`` keeps, torch-free: every mistake is found, and no key is ignored silently."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from neo.data.files import list_files
from neo.errors import DataError, Finding, unknown_name
from neo.limits import MAX_ROWS, empty_paths, outside, outside_limits

GENERATED_ONLY = ("num_samples", "val_samples", "num_dense", "zipf_exponent")
COLUMNS = ("label", "dense", "categorical", "lists", "list_weights")
FILES_ONLY = (
    *("path", "val_path", *COLUMNS, "encoding", "hash_buckets", "min_count", "multi_hot", "dense_transform", "shuffle"),
    "shuffle_window",
)


_KINDS = {
    "encoding": "encoding",
    "dense_transform": "transform of dense columns",
    "out_of_range": "policy for ids out of range",
    "multi_hot": "way to make several ids of one",
}
_LIMITS: Mapping[str, tuple[float, float]] = {
    "limit_samples": (1, 2**62),
    "hash_buckets": (2, MAX_ROWS),
    "min_count": (1, 2**62),
    "shuffle_window": (2, 2**31),
    "num_workers": (0, 64),
    "num_samples": (1, 2**48),
    "val_samples": (0, 2**48),
    "num_dense": (0, 100_000),
    "zipf_exponent": (0, 20),
}


def check_config(config: Any, readers: Sequence[str], choices: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Return every mistake in a ``DataConfig``, keys relative to ``data``."""
    findings = []
    if config.name not in readers:
        findings.append(unknown_name("name", config.name, "data reader", readers))
    for key, allowed in choices.items():
        value = getattr(config, key)
        if value is not None and value not in allowed:
            findings.append(unknown_name(key, value, _KINDS[key], allowed))
    findings += _check_batch_size(config.global_batch_size)
    findings += outside_limits(config, _LIMITS) + empty_paths(config, ("path", "val_path"))
    if config.name in readers:
        findings += _check_ignored(config)
    if config.name in readers and config.name != "synthetic":
        findings += _check_paths(config)
        findings += _check_encoding(config)
    if config.name in ("parquet", "csv"):
        findings += _check_columns(config)
        findings += _check_files(config)
    return findings


def _check_batch_size(size: int | str) -> list[Finding]:
    if size == "auto":
        return []
    if isinstance(size, bool) or not isinstance(size, int):
        return [Finding("global_batch_size", f"'{size}' is neither 'auto' nor a whole number", "write it like 2048")]
    found = outside("global_batch_size", size, 1, 2**31)
    return [Finding(finding.key, finding.problem, "write it like 2048") for finding in found]


def _check_ignored(config: Any) -> list[Finding]:
    """Find the keys that are set although the chosen reader has no use for them."""
    unused, why = {
        "synthetic": (FILES_ONLY, "it makes its samples on the fly; model.num_embeddings defines its features"),
        "criteo": ((*GENERATED_ONLY, *COLUMNS), "its columns are fixed by the format"),
    }.get(config.name, (GENERATED_ONLY, "its samples come from files"))
    return [
        Finding(key, f"has no effect on data={config.name}: {why}", "remove it")
        for key in unused
        if getattr(config, key) is not None
    ]


def _check_paths(config: Any) -> list[Finding]:
    if config.path is None:
        return [
            Finding("path", f"is not set, and data={config.name} reads files", "write data.path=FILE_OR_FOLDER"),
            *_check_path("val_path", config),
        ]
    return _check_path("path", config) + _check_path("val_path", config)


def _check_path(key: str, config: Any) -> list[Finding]:
    path = getattr(config, key)
    if not path:  # an empty one is told
        return []
    try:
        list_files(path, config.name)
    except DataError as error:
        return [Finding(key, str(error))]
    return []


def _check_encoding(config: Any) -> list[Finding]:
    findings = []
    encoding = config.encoding or ("hash" if config.name == "criteo" else "vocabulary")
    if config.hash_buckets is not None and encoding != "hash":
        findings.append(
            Finding(
                "hash_buckets", f"has no effect with encoding '{encoding}'", "remove it or write data.encoding=hash"
            )
        )
    if config.min_count is not None and encoding != "vocabulary":
        findings.append(
            Finding(
                "min_count",
                f"has no effect with encoding '{encoding}': it has no row for rare ids",
                "remove it or write data.encoding=vocabulary",
            )
        )
    if config.multi_hot == "fixed" and config.lists:
        problem = "'fixed' makes several ids of one, but data.lists names columns with several ids"
        findings.append(Finding("multi_hot", problem, "write data.multi_hot=none, or no data.lists"))
    if config.name == "criteo" and encoding == "identity":
        findings.append(
            Finding("encoding", "'identity' needs whole numbers, but Criteo's ids are hexadecimal text", "use hash")
        )
    if config.shuffle is False and config.shuffle_window is not None:
        findings.append(
            Finding("shuffle_window", "has no effect with data.shuffle=false", "remove it or write data.shuffle=true")
        )
    return findings


def _check_columns(config: Any) -> list[Finding]:
    findings = []
    reader = config.name
    if config.label is None:
        findings.append(Finding("label", f"is not set, and data={reader} needs its name", "write data.label=COLUMN"))
    if not config.categorical and not config.lists:
        findings.append(
            Finding(
                "categorical", "names no column, and neither does data.lists", "write data.categorical=[COLUMN,...]"
            )
        )
    roles = {key: getattr(config, key) or [] for key in ("dense", "categorical", "lists")}
    weights = [name for name in config.list_weights or [] if name is not None]
    used: dict[str, str] = {} if config.label is None else {config.label: "label"}
    for key, names in (*roles.items(), ("list_weights", weights)):
        for name in names:
            if name in used:
                findings.append(Finding(key, f"'{name}' is already used by data.{used[name]}", "name a column once"))
            used[name] = key
    if config.list_weights is not None and len(config.list_weights) != len(roles["lists"]):
        findings.append(
            Finding(
                "list_weights",
                f"has {len(config.list_weights)} entries for {len(roles['lists'])} entries of data.lists",
                "give one per list, null for a list without weights",
            )
        )
    return findings


def _check_files(config: Any) -> list[Finding]:
    from neo.data.column_check import check_files  # whoever reads no file needs no pyarrow

    return check_files(config)


def check_bags(pooling_factors: Sequence[float] | None) -> list[Finding]:
    """Return the mistakes in ``model.pooling_factors`` under ``data.multi_hot=fixed``, full keys."""
    if pooling_factors is None:
        problem = "'fixed' makes as many ids per sample as model.pooling_factors says, which is not set"
        return [Finding("data.multi_hot", problem, "write model.pooling_factors=[…], one whole number per feature")]
    return [
        Finding(
            f"model.pooling_factors[{index}]",
            f"{factor} is not a whole number from 1, and data.multi_hot=fixed makes exactly so many ids per sample",
            "write one like 3",
        )
        for index, factor in enumerate(pooling_factors)
        if not (factor >= 1 and float(factor).is_integer())
    ]


def check_features(
    num_features: int | None, num_embeddings: Sequence[int] | None, pooling_factors: Sequence[float] | None, fewest: int
) -> list[Finding]:
    """Return the mistakes in ``model.num_embeddings`` and ``model.pooling_factors``, full keys.

    Args:
        num_features: Number of features that the data has; None if the lists define them.
        num_embeddings: Rows per table, or None.
        pooling_factors: Mean ids per sample and table, or None.
        fewest: The fewest rows that a table can have.
    """
    findings = []
    lists = {"model.num_embeddings": num_embeddings, "model.pooling_factors": pooling_factors}
    given = {key: values for key, values in lists.items() if values is not None}
    for key, values in given.items():
        if num_features is not None and len(values) != num_features:
            findings.append(
                Finding(key, f"has {len(values)} entries for {num_features} sparse features", "give one per feature")
            )
        if num_features is None and not values:
            findings.append(Finding(key, "is an empty list", "give one entry per feature, or null"))
    if num_features is None and len(given) == 2 and len({len(values) for values in given.values()}) == 2:
        findings.append(
            Finding(
                "model.pooling_factors",
                f"has {len(pooling_factors or ())} entries for {len(num_embeddings or ())} of model.num_embeddings",
                "give one per table",
            )
        )
    for index, rows in enumerate(num_embeddings or ()):
        if rows > MAX_ROWS:
            findings.append(Finding(f"model.num_embeddings[{index}]", f"{rows} is above the limit 2^48"))
        if rows < fewest:
            findings.append(Finding(f"model.num_embeddings[{index}]", f"{rows} is below the limit {fewest}"))
    for index, factor in enumerate(pooling_factors or ()):
        if not (math.isfinite(factor) and 0 < factor <= 1_000_000):
            findings.append(Finding(f"model.pooling_factors[{index}]", f"{factor} is outside (0, 1000000]"))
    return findings
