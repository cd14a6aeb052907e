"""Model configuration, torch-free: names, sizes, tables, and what the dense part costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from neo.errors import ConfigError, Finding, unknown_name
from neo.limits import MAX_DIM, MAX_ROWS, outside, outside_limits
from neo.models.table_list import listed_tables, tables_from_csv
from neo.registry import Registry
from neo.tables.spec import FeatureSpec, Pooling, TableSpec

__all__ = [
    "EMBEDDINGS_PATH",
    "MODELS",
    "TABLE_LIST",
    "ModelConfig",
    "ModelSpec",
    "dense_parameters",
    "flops_per_sample",
    "listed_tables",
    "tables_from_csv",
    "tables_of",
]

MODELS: Registry[type] = Registry("model")
MODELS.register("dlrm", "neo.models.dlrm:DLRM")
MODELS.register("dlrm_dcnv2", "neo.models.dlrm_dcnv2:DLRMDCNv2")

TABLE_LIST = "table_list"
"""The model that is only planned: a list of tables in a file."""

EMBEDDINGS_PATH = "model.embeddings"
"""Where the collection sits in our LightningModule: the plan's key of a table is ``model.embeddings.<name>``."""

_DCNV2 = "dlrm_dcnv2"
_POOLINGS = (Pooling.SUM, Pooling.MEAN)  # The models here read one vector per feature, not a sequence.
_SIZES = ("embedding_dim", "bottom_mlp", "top_mlp", "num_embeddings", "pooling_factors", "pooling")
_CROSS = ("num_cross_layers", "cross_rank")
_LISTED = ("path", "mflops_per_sample", "dense_parameters")
_LIMITS = {
    "embedding_dim": (1, MAX_DIM),
    "num_cross_layers": (1, 1000),
    "cross_rank": (1, MAX_DIM),
    "mflops_per_sample": (0, 10**12),
    "dense_parameters": (0, MAX_ROWS),
}
_LIST_LIMITS = {"bottom_mlp": (1, MAX_DIM), "top_mlp": (1, MAX_DIM), "num_embeddings": (1, MAX_ROWS)}


@dataclass(frozen=True)
class ModelSpec:
    """``model.*``, resolved.

    Attributes:
        name: A name in ``MODELS``, or ``table_list``.
        embedding_dim: Columns of every table.
        bottom_mlp: Hidden sizes of the bottom MLP; a last layer of ``embedding_dim`` is added.
        top_mlp: Hidden sizes of the top MLP; a last layer of 1 is added.
        num_embeddings: Rows per table; None takes them from the data.
        pooling_factors: Mean ids per sample and table; None takes them from the data.
        pooling: How every table pools its bags.
        num_cross_layers: ``dlrm_dcnv2``: number of cross layers; 0 elsewhere.
        cross_rank: ``dlrm_dcnv2``: rank of their weights; 0 elsewhere.
        path: ``table_list``: the file.
        mflops_per_sample: ``table_list``: forward cost of the dense part, in 10^6 floating-point operations.
        dense_parameters: ``table_list``: parameters of the dense part.
    """

    name: str
    embedding_dim: int
    bottom_mlp: tuple[int, ...]
    top_mlp: tuple[int, ...]
    num_embeddings: tuple[int, ...] | None = None
    pooling_factors: tuple[float, ...] | None = None
    pooling: Pooling = Pooling.SUM
    num_cross_layers: int = 0
    cross_rank: int = 0
    path: str | None = None
    mflops_per_sample: float = 0.0
    dense_parameters: int = 0


@dataclass
class ModelConfig:
    """``model.*``; None stands for the model's own default."""

    name: str = "dlrm"
    embedding_dim: int | None = None
    bottom_mlp: list[int] | None = None
    top_mlp: list[int] | None = None
    num_embeddings: list[int] | None = None
    pooling_factors: list[float] | None = None
    pooling: str | None = None
    num_cross_layers: int | None = None
    cross_rank: int | None = None
    path: str | None = None
    mflops_per_sample: float | None = None
    dense_parameters: int | None = None

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``model``."""
        known = (*MODELS.names(), TABLE_LIST)
        if self.name not in known:
            return [unknown_name("name", self.name, "model", known), *self._wrong_values()]
        return [*self._without_effect(), *self._wrong_values()]

    def to_spec(self) -> ModelSpec:
        """Return the frozen form of a valid configuration."""
        crosses = self.name == _DCNV2
        return ModelSpec(
            name=self.name,
            embedding_dim=16 if self.embedding_dim is None else self.embedding_dim,
            bottom_mlp=(64,) if self.bottom_mlp is None else tuple(self.bottom_mlp),
            top_mlp=(64, 64) if self.top_mlp is None else tuple(self.top_mlp),
            num_embeddings=None if self.num_embeddings is None else tuple(self.num_embeddings),
            pooling_factors=None if self.pooling_factors is None else tuple(self.pooling_factors),
            pooling=Pooling.SUM if self.pooling is None else Pooling(self.pooling),
            num_cross_layers=_default(self.num_cross_layers, 3) if crosses else 0,
            cross_rank=_default(self.cross_rank, 512) if crosses else 0,
            path=self.path,
            mflops_per_sample=0.0 if self.mflops_per_sample is None else self.mflops_per_sample,
            dense_parameters=_default(self.dense_parameters, 0),
        )

    def _without_effect(self) -> list[Finding]:
        unread: tuple[str, ...]
        if self.name == TABLE_LIST:
            unread = (*_SIZES, *_CROSS)
        elif self.name == "dlrm":
            unread = (*_LISTED, *_CROSS)
        else:
            unread = _LISTED
        readers = {**dict.fromkeys(_CROSS, "model=dlrm_dcnv2"), **dict.fromkeys(_LISTED, "model=table_list")}
        return [
            Finding(
                key, f"{value} has no effect on '{self.name}'", f"leave it out, or use {readers.get(key, 'model=dlrm')}"
            )
            for key in unread
            if (value := getattr(self, key)) is not None
        ]

    def _wrong_values(self) -> list[Finding]:
        findings = outside_limits(self, _LIMITS)
        for key, (low, high) in _LIST_LIMITS.items():
            for i, value in enumerate(getattr(self, key) or []):
                findings += outside(f"{key}[{i}]", value, low, high)
        for i, factor in enumerate(self.pooling_factors or []):
            if not (math.isfinite(factor) and factor > 0):
                findings.append(Finding(f"pooling_factors[{i}]", f"{factor} is not a finite number above 0"))
        for key in ("num_embeddings", "pooling_factors"):
            if getattr(self, key) == []:
                findings.append(Finding(key, "[] lists no table", "leave it out to take it from the data"))
        if self.num_embeddings and self.pooling_factors and len(self.num_embeddings) != len(self.pooling_factors):
            counts = f"{len(self.pooling_factors)} entries, but num_embeddings has {len(self.num_embeddings)}"
            findings.append(Finding("pooling_factors", counts, "give both one entry per table"))
        if self.pooling is not None and self.pooling not in _POOLINGS:
            findings.append(unknown_name("pooling", self.pooling, "pooling", _POOLINGS))
        if self.name == TABLE_LIST and self.path is None:
            findings.append(Finding("path", "table_list needs a file", "write model.path=FILE.csv"))
        return findings


def tables_of(model: ModelSpec, features: Sequence[FeatureSpec]) -> tuple[TableSpec, ...]:
    """Return one table per feature, named like it, in the order of the features.

    Sizes are the features': the learning pass has been given ``model.num_embeddings`` and knows which rows an
    encoding adds to them.

    Raises:
        ConfigError: Such a list has another length than there are features.
        DataError: The model is a table list whose file is wrong.
    """
    if model.name == TABLE_LIST:
        return tables_from_csv(model.path or "")
    lists = (("num_embeddings", model.num_embeddings), ("pooling_factors", model.pooling_factors))
    findings = [
        Finding(f"model.{key}", f"{len(given)} entries for {len(features)} features", "give one entry per feature")
        for key, given in lists
        if given is not None and len(given) != len(features)
    ]
    if not features:
        findings.append(Finding("data.categorical", "the data has no sparse feature, so there is no table to train"))
    if findings:
        raise ConfigError(findings)
    return tuple(
        TableSpec(
            name=feature.name,
            num_embeddings=feature.num_embeddings,
            embedding_dim=model.embedding_dim,
            feature_names=(feature.name,),
            pooling=model.pooling,
            weighted=feature.weighted,
            pooling_factor=feature.pooling_factor,
        )
        for feature in features
    )


def dense_parameters(model: ModelSpec, *, num_dense: int, tables: Sequence[TableSpec]) -> int:
    """Return the number of parameters of the dense part.

    Args:
        model: The model.
        num_dense: Number of dense features.
        tables: Its tables.
    """
    if model.name == TABLE_LIST:
        return model.dense_parameters
    num_vectors, width = _interaction_shape(model, tables)
    bottom = _mlp_parameters(bottom_sizes(model, num_dense)) if num_dense else model.embedding_dim
    cross = model.num_cross_layers * (2 * num_vectors * width * model.cross_rank + num_vectors * width)
    return bottom + cross + _mlp_parameters(top_sizes(model, num_vectors))


def flops_per_sample(model: ModelSpec, *, num_dense: int, tables: Sequence[TableSpec]) -> float:
    """Return the floating-point operations of one sample's forward pass through the dense part.

    A multiply-add counts as two. The backward pass costs twice as much again. Lookups are memory traffic and are
    not counted.

    Args:
        model: The model.
        num_dense: Number of dense features.
        tables: Its tables.
    """
    if model.name == TABLE_LIST:
        return model.mflops_per_sample * 1e6
    num_vectors, width = _interaction_shape(model, tables)
    bottom = _mlp_flops(bottom_sizes(model, num_dense)) if num_dense else 0
    if model.num_cross_layers:
        interaction = model.num_cross_layers * (4 * num_vectors * width * model.cross_rank + 3 * num_vectors * width)
    else:
        interaction = 2 * num_vectors * num_vectors * width
    return float(bottom + interaction + _mlp_flops(top_sizes(model, num_vectors)))


def bottom_sizes(model: ModelSpec, num_dense: int) -> tuple[int, ...]:
    """Return the widths of the bottom MLP from its input to its output."""
    return (num_dense, *model.bottom_mlp, model.embedding_dim)


def top_sizes(model: ModelSpec, num_vectors: int) -> tuple[int, ...]:
    """Return the widths of the top MLP from its input to its output.

    Args:
        model: The model.
        num_vectors: Vectors that interact: one per sparse feature and one of the bottom MLP.
    """
    crosses = model.num_cross_layers > 0
    pairs = num_vectors * (num_vectors - 1) // 2
    interaction = num_vectors * model.embedding_dim if crosses else model.embedding_dim + pairs
    return (interaction, *model.top_mlp, 1)


def _interaction_shape(model: ModelSpec, tables: Sequence[TableSpec]) -> tuple[int, int]:
    return 1 + sum(len(table.feature_names) for table in tables), model.embedding_dim


def _mlp_parameters(sizes: Sequence[int]) -> int:
    return sum(inputs * outputs + outputs for inputs, outputs in pairwise(sizes))


def _mlp_flops(sizes: Sequence[int]) -> int:
    return sum(2 * inputs * outputs for inputs, outputs in pairwise(sizes))


def _default(value: int | None, default: int) -> int:
    return default if value is None else value
