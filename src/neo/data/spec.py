"""Data configuration, torch-free: readers, columns, encodings, and the rules that they must keep."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from neo.data.rules import check_bags, check_config, check_features
from neo.errors import Finding
from neo.registry import Registry

T = TypeVar("T")

READERS: Registry[Callable[..., Any]] = Registry("data reader")
READERS.register("synthetic", "neo.data.synthetic:SyntheticReader")
READERS.register("criteo", "neo.data.criteo:open_criteo")
READERS.register("parquet", "neo.data.parquet:ParquetReader")
READERS.register("csv", "neo.data.csv:open_csv")

CRITEO_DENSE = tuple(f"I{number}" for number in range(1, 14))
CRITEO_CATEGORICAL = tuple(f"C{number}" for number in range(1, 27))
DEFAULT_ROWS = 1_000
"""Rows of a generated table that ``model.num_embeddings`` says nothing about."""
DEFAULT_POOLING = (1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 5.0)
"""Mean ids per sample of the generated features that ``model.*`` says nothing about."""
TRAINING_BATCH_SIZE = 2048
PLANNING_BATCH_SIZE_PER_ACCELERATOR = 512


class Split(StrEnum):
    """The samples that a reader reads."""

    TRAIN = "train"
    VAL = "val"


class Encoding(StrEnum):
    """How an id becomes a row of its table.

    ``vocabulary``: row 0 for a missing id, row 1 for an id that the training data does not hold, then the known ids.
    ``hash``: row 0 for a missing id, else 1 + hash mod (hash_buckets - 1).
    ``identity``: id i is row i; the last row is for a missing id.
    """

    VOCABULARY = "vocabulary"
    HASH = "hash"
    IDENTITY = "identity"


class DenseTransform(StrEnum):
    """What happens to dense columns: (x - mean) / deviation, log(1 + max(x, 0)), or nothing; missing is 0 after it."""

    STANDARDIZE = "standardize"
    LOG1P = "log1p"
    NONE = "none"


class MultiHot(StrEnum):
    """Whether ``model.pooling_factors`` ids per sample are made of the one that a categorical column holds."""

    NONE = "none"
    FIXED = "fixed"


class OutOfRange(StrEnum):
    """What happens to an id outside its table: an error, or row 0, or no lookup; the last two are counted."""

    ERROR = "error"
    CLAMP_ZERO = "clamp_zero"
    DROP = "drop"


class Uneven(StrEnum):
    """What happens when ranks have unequal numbers of batches: an error, the shortest ends all, or empty batches."""

    ERROR = "error"
    STOP = "stop"
    PAD = "pad"


@dataclass(frozen=True)
class DataSpec:
    """All of ``data.*``, resolved: no ``None`` stands for a default any more.

    Attributes:
        name: A name in ``READERS``.
        path: Training file, folder or glob; absolute. None for generated data.
        val_path: The same for validation; None if there is none.
        global_batch_size: Samples of a batch over all ranks; ``auto`` means 2048 in training, 512 per accelerator in
            planning.
        limit_samples: Train on the first so many samples only.
        label: Column of the label; None to read no label: every one is 0 then.
        dense: Dense columns.
        categorical: Columns with one id per sample.
        lists: Columns with any number of ids per sample.
        list_weights: Per entry of ``lists`` the column of its weights, or None.
        encoding: How ids become rows.
        hash_buckets: Rows of each table under ``hash``.
        min_count: Ids that the training data holds fewer times share the row of unseen ids, under ``vocabulary``.
        multi_hot: Whether several ids are made of the one in a categorical column.
        dense_transform: What happens to dense columns.
        out_of_range: Policy for ids outside their table.
        shuffle: Whether training samples are shuffled in every epoch.
        shuffle_window: Samples that are shuffled among each other (and held in memory).
        num_workers: Threads that read ahead: 0 reads in the step, from 2 on the first reads and the others encode.
        num_samples: Generated training samples; 0 for files.
        val_samples: Generated validation samples; 0 for files.
        num_dense: Generated dense features; 0 for files.
        zipf_exponent: Popularity of generated ids: the k-th most popular has weight k^-exponent.
    """

    name: str
    path: Path | None
    val_path: Path | None
    global_batch_size: int | None
    limit_samples: int | None
    label: str | None
    dense: tuple[str, ...]
    categorical: tuple[str, ...]
    lists: tuple[str, ...]
    list_weights: tuple[str | None, ...]
    encoding: Encoding
    hash_buckets: int
    min_count: int
    multi_hot: MultiHot
    dense_transform: DenseTransform
    out_of_range: OutOfRange
    shuffle: bool
    shuffle_window: int
    num_workers: int
    num_samples: int
    val_samples: int
    num_dense: int
    zipf_exponent: float

    @property
    def training_batch_size(self) -> int:
        """Samples of a global batch in training."""
        return TRAINING_BATCH_SIZE if self.global_batch_size is None else self.global_batch_size

    def planning_batch_size(self, num_accelerators: int) -> int:
        """Samples of a global batch when a machine with so many accelerators is planned for."""
        auto = PLANNING_BATCH_SIZE_PER_ACCELERATOR * num_accelerators
        return auto if self.global_batch_size is None else self.global_batch_size

    @property
    def is_generated(self) -> bool:
        """Whether samples are made on the fly and no file is read."""
        return self.name == "synthetic"

    @property
    def has_validation(self) -> bool:
        """Whether there are validation samples."""
        return self.val_samples > 0 if self.is_generated else self.val_path is not None

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read from files."""
        labels = () if self.label is None else (self.label,)
        weights = tuple(name for name in self.list_weights if name is not None)
        return (*labels, *self.dense, *self.features, *weights)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the sparse features that files declare, in the order of a batch's keys."""
        return self.categorical + self.lists

    def path_of(self, split: Split) -> Path:
        """Return where the files of ``split`` are.

        Raises:
            ValueError: This split has no files.
        """
        path = self.path if split is Split.TRAIN else self.val_path
        if path is None:
            raise ValueError(f"data={self.name} has no files for '{split}'")
        return path


@dataclass
class DataConfig:
    """``data.*``; ``None`` means the default of the chosen reader. See ``DataSpec``."""

    name: str = "synthetic"
    path: str | None = None
    val_path: str | None = None
    global_batch_size: int | str = "auto"
    limit_samples: int | None = None
    label: str | None = None
    dense: list[str] | None = None
    categorical: list[str] | None = None
    lists: list[str] | None = None
    list_weights: list[str | None] | None = None
    encoding: str | None = None
    hash_buckets: int | None = None
    min_count: int | None = None
    multi_hot: str | None = None
    dense_transform: str | None = None
    out_of_range: str = "error"
    shuffle: bool | None = None
    shuffle_window: int | None = None
    num_workers: int = 1
    num_samples: int | None = None
    val_samples: int | None = None
    num_dense: int | None = None
    zipf_exponent: float | None = None

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``data``."""
        choices = {
            "encoding": tuple(Encoding),
            "dense_transform": tuple(DenseTransform),
            "out_of_range": tuple(OutOfRange),
            "multi_hot": tuple(MultiHot),
        }
        return check_config(self, READERS.names(), choices)

    def to_spec(self) -> DataSpec:
        """Return the frozen form of a valid configuration, with the defaults of its reader."""
        generated, criteo = self.name == "synthetic", self.name == "criteo"
        encoding = Encoding.HASH if criteo else Encoding.VOCABULARY
        transform = DenseTransform.LOG1P if criteo else DenseTransform.STANDARDIZE
        lists = tuple(self.lists or ())
        return DataSpec(
            name=self.name,
            path=_absolute(self.path),
            val_path=_absolute(self.val_path),
            global_batch_size=self.global_batch_size if isinstance(self.global_batch_size, int) else None,
            limit_samples=self.limit_samples,
            label="label" if self.label is None else self.label,
            dense=CRITEO_DENSE if criteo else tuple(self.dense or ()),
            categorical=CRITEO_CATEGORICAL if criteo else tuple(self.categorical or ()),
            lists=lists,
            list_weights=(None,) * len(lists) if self.list_weights is None else tuple(self.list_weights),
            encoding=Encoding.IDENTITY if generated else Encoding(_or(self.encoding, encoding)),
            hash_buckets=_or(self.hash_buckets, 100_000),
            min_count=_or(self.min_count, 1),
            multi_hot=MultiHot(_or(self.multi_hot, MultiHot.NONE)),
            dense_transform=DenseTransform.NONE if generated else DenseTransform(_or(self.dense_transform, transform)),
            out_of_range=OutOfRange(self.out_of_range),
            shuffle=not generated if self.shuffle is None else self.shuffle,
            shuffle_window=_or(self.shuffle_window, 65_536),
            num_workers=self.num_workers,
            num_samples=_or(self.num_samples, 1_000_000) if generated else 0,
            val_samples=_or(self.val_samples, 100_000) if generated else 0,
            num_dense=_or(self.num_dense, 13) if generated else 0,
            zipf_exponent=_or(self.zipf_exponent, 1.05),
        )

    def feature_names(self, num_embeddings: list[int] | None, pooling_factors: list[float] | None) -> tuple[str, ...]:
        """Return the names of the sparse features, known without reading any data."""
        if self.name == "criteo":
            return CRITEO_CATEGORICAL
        if self.name == "synthetic":
            return tuple(f"sparse_{i}" for i in range(len(num_embeddings or pooling_factors or DEFAULT_POOLING)))
        return (*(self.categorical or ()), *(self.lists or ()))

    def check_features(
        self, num_embeddings: list[int] | None, pooling_factors: list[float] | None, model_name: str = "dlrm"
    ) -> list[Finding]:
        """Return the mistakes in ``model.num_embeddings`` and ``model.pooling_factors`` for this data."""
        if model_name == "table_list" or self.name not in READERS:
            return []
        if self.name == "criteo":
            count: int | None = len(CRITEO_CATEGORICAL)
        else:
            count = None if self.name == "synthetic" else len(self.categorical or ()) + len(self.lists or ())
        hashed = (self.encoding or ("hash" if self.name == "criteo" else "vocabulary")) == "hash"
        fewest = 2 if hashed and self.name != "synthetic" else 1
        findings = check_features(count, num_embeddings, pooling_factors, fewest)
        return findings + (check_bags(pooling_factors) if self.multi_hot == MultiHot.FIXED else [])


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _absolute(path: str | None) -> Path | None:
    return None if path is None else Path(path).expanduser().absolute()
