"""Model configuration, torch-free: names, sizes, tables, and what the dense part costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from neo.errors import ConfigError, Finding, unknown_name
from neo.limits import MAX_DIM, MAX_ROWS, outside, outside_limits
from neo.models.kinds import (
    BOTTOM,
    COMMON_SIZES,
    CROSS,
    LISTED,
    MODELS,
    TABLE_LIST,
    DenseCost,
    ModelKind,
    kind_of,
    mlp_cost,
    register_model,
)
from neo.models.model_spec import ModelSpec
from neo.models.table_list import listed_tables, tables_from_csv
from neo.tables.spec import FeatureSpec, Pooling, TableSpec

__all__ = [
    "EMBEDDINGS_PATH",
    "MODELS",
    "TABLE_LIST",
    "DenseCost",
    "ModelConfig",
    "ModelKind",
    "ModelSpec",
    "declared_tables",
    "dense_parameters",
    "flops_per_sample",
    "listed_tables",
    "mlp_cost",
    "register_model",
    "tables_from_csv",
    "tables_of",
]

EMBEDDINGS_PATH = "model.embeddings"
"""Where the collection sits in our LightningModule: the plan's key of a table is ``model.embeddings.<name>``."""

_POOLINGS = (Pooling.SUM, Pooling.MEAN)  # The models here read one vector per feature, not a sequence.
_KEYS = (*COMMON_SIZES, *BOTTOM, *LISTED, *CROSS)
_LIMITS = {
    "embedding_dim": (1, MAX_DIM),
    "num_cross_layers": (1, 1000),
    "cross_rank": (1, MAX_DIM),
    "mflops_per_sample": (0, 10**12),
    "dense_parameters": (0, MAX_ROWS),
}
_LIST_LIMITS = {"bottom_mlp": (1, MAX_DIM), "top_mlp": (1, MAX_DIM), "num_embeddings": (1, MAX_ROWS)}


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
        reads = kind_of(self.name).reads
        crosses, has_bottom = "num_cross_layers" in reads, "bottom_mlp" in reads
        return ModelSpec(
            name=self.name,
            embedding_dim=16 if self.embedding_dim is None else self.embedding_dim,
            bottom_mlp=() if not has_bottom else (64,) if self.bottom_mlp is None else tuple(self.bottom_mlp),
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
        reads = kind_of(self.name).reads
        readers = {**dict.fromkeys(CROSS, "model=dlrm_dcnv2"), **dict.fromkeys(LISTED, "model=table_list")}
        return [
            Finding(
                key, f"{value} has no effect on '{self.name}'", f"leave it out, or use {readers.get(key, 'model=dlrm')}"
            )
            for key in _KEYS
            if key not in reads and (value := getattr(self, key)) is not None
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
        if self.name == TABLE_LIST and not self.path:
            findings.append(Finding("path", "table_list needs a file", "write model.path=FILE.csv"))
        return findings


def declared_tables(model: ModelSpec, features: Sequence[FeatureSpec]) -> tuple[TableSpec, ...]:
    """Return the tables of a registered model for these features; nothing is checked."""
    return kind_of(model.name).tables(model, features)


def tables_of(model: ModelSpec, features: Sequence[FeatureSpec]) -> tuple[TableSpec, ...]:
    """Return the model's tables in the order of their outputs: one per feature, named like it, or what it declares.

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
    return declared_tables(model, features)


def dense_parameters(model: ModelSpec, *, num_dense: int, tables: Sequence[TableSpec]) -> int:
    """Return the number of parameters of the dense part.

    Args:
        model: The model.
        num_dense: Number of dense features.
        tables: Its tables.
    """
    return _cost(model, num_dense, tables).parameters


def flops_per_sample(model: ModelSpec, *, num_dense: int, tables: Sequence[TableSpec]) -> float:
    """Return the floating-point operations of one sample's forward pass through the dense part.

    A multiply-add counts as two. The backward pass costs twice as much again. Lookups are memory traffic and are
    not counted.

    Args:
        model: The model.
        num_dense: Number of dense features.
        tables: Its tables.
    """
    return _cost(model, num_dense, tables).flops


def _cost(model: ModelSpec, num_dense: int, tables: Sequence[TableSpec]) -> DenseCost:
    features = {feature for table in tables for feature in table.feature_names}
    return kind_of(model.name).cost(model, num_dense, len(features))


def _default(value: int | None, default: int) -> int:
    return default if value is None else value
