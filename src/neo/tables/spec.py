"""Embedding tables and the features that read them, as frozen facts."""

from dataclasses import dataclass
from enum import StrEnum
from numbers import Integral

from neo.errors import unknown_name


class Pooling(StrEnum):
    """How the rows of one bag become one vector; ``NONE`` keeps every row (a sequence output)."""

    SUM = "sum"
    MEAN = "mean"
    NONE = "none"


class WeightsDtype(StrEnum):
    """The type in which a table stores its weights."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"

    @property
    def num_bytes(self) -> int:
        """Bytes of one element."""
        return 4 if self is WeightsDtype.FP32 else 2


@dataclass(frozen=True)
class FeatureSpec:
    """One sparse feature as the data defines it.

    Attributes:
        name: Name of the feature; a column of the data.
        num_embeddings: Number of distinct row indices that the reader can produce for it.
        pooling_factor: Mean number of ids per sample (for planning).
        weighted: Whether each id comes with a weight.
    """

    name: str
    num_embeddings: int
    pooling_factor: float = 1.0
    weighted: bool = False


@dataclass(frozen=True)
class TableSpec:
    """One logical embedding table.

    Attributes:
        name: Name, unique within its collection.
        num_embeddings: Rows.
        embedding_dim: Columns.
        feature_names: Features that read this table, in output order; each gives one pooled output.
        pooling: How a bag is pooled; with ``none`` each id gives an output row of its own.
        weighted: Whether its features come with per-sample weights.
        pooling_factor: Mean ids per sample over its features together (for planning).
    """

    name: str
    num_embeddings: int
    embedding_dim: int
    feature_names: tuple[str, ...]
    pooling: Pooling = Pooling.SUM
    weighted: bool = False
    pooling_factor: float = 1.0

    def output_name(self, feature: str) -> str:
        """Return the name of one feature's output: its own where the table is named like it, else table.feature."""
        return feature if self.name == feature else f"{self.name}.{feature}"

    def __post_init__(self) -> None:
        if self.pooling not in list(Pooling):
            raise ValueError(f"table '{self.name}': {unknown_name('pooling', self.pooling, 'pooling', list(Pooling))}")
        object.__setattr__(self, "pooling", Pooling(self.pooling))  # a plain "mean" means the same
        names: object = self.feature_names
        if not self.name or isinstance(names, str):
            raise ValueError(f"table '{self.name}': it needs a name, and feature_names a tuple of names, not {names!r}")
        sizes: tuple[object, ...] = (self.num_embeddings, self.embedding_dim)
        if not all(isinstance(size, Integral) for size in sizes):
            raise ValueError(f"table '{self.name}': num_embeddings and embedding_dim are whole numbers, not {sizes}")
        if self.num_embeddings < 1 or self.embedding_dim < 1:
            raise ValueError(
                f"table '{self.name}': num_embeddings and embedding_dim must be at least 1, "
                f"not {self.num_embeddings} x {self.embedding_dim}"
            )
        if self.pooling is Pooling.NONE and self.weighted:
            raise ValueError(
                f"table '{self.name}': pooling=none returns each id's row as it is and takes no per-sample weights; "
                f"use weighted=False and multiply in the model"
            )
        if len(set(self.feature_names)) != len(self.feature_names):
            raise ValueError(f"table '{self.name}': feature_names {self.feature_names} name a feature twice")
        if not self.feature_names:
            raise ValueError(f"table '{self.name}': feature_names is empty; name the features that read it")
