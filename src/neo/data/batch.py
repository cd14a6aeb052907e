"""The combined format: one lengths and one values tensor for all sparse features of a batch.

Shapes: F features, B samples, N ids in all. ``lengths`` is feature-major ``[F * B]``: the bag of feature f and
sample b has ``lengths[f * B + b]`` ids, and ``values`` ``[N]`` holds the bags in that order. With a variable batch each
feature has its own number of bags B_f (the ids of equal samples stored once, say), and ``lengths`` is ``[sum(B_f)]``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neo.errors import DataError


class SparseFeatures:
    """All sparse features of a batch, checked when built.

    Args:
        keys: Feature names, F of them.
        lengths: ``[F * B]`` int32 or int64, feature-major.
        values: ``[N]`` int32 or int64 row indices.
        weights: ``[N]`` floating point, one per id, where features are weighted; used as float32.
        weighted: Per key, whether its ids carry weights; all of them if ``weights`` is given and this is not.
        bag_counts: Per key its number of bags, for a variable batch; one per sample if left out.
        batch_size: Number of samples of a variable batch; the largest of ``bag_counts`` if left out.

    Raises:
        DataError: The parts do not fit each other; the message says which and how.
    """

    def __init__(
        self,
        keys: Sequence[str],
        lengths: Tensor,
        values: Tensor,
        weights: Tensor | None = None,
        weighted: Sequence[bool] | None = None,
        *,
        bag_counts: Sequence[int] | None = None,
        batch_size: int | None = None,
    ) -> None:
        if isinstance(keys, str):
            raise DataError(f"sparse keys must be a list of names, not the text '{keys}'")
        self.keys = tuple(keys)
        _check_parts(self.keys, lengths, values, weights, bag_counts)
        if bag_counts is None and batch_size is not None:
            raise DataError("batch_size goes with bag_counts; without them it follows from the lengths")
        if batch_size is not None and batch_size < 0:
            raise DataError(f"batch_size {batch_size} is negative")
        self.bag_counts = None if bag_counts is None else tuple(bag_counts)
        self._batch_size = batch_size
        self.lengths = lengths.to(torch.int64).contiguous()
        self.values = values.to(torch.int64).contiguous()
        self.weights = None if weights is None else weights.to(torch.float32).contiguous()
        has_weights = weights is not None
        self.weighted = tuple(weighted) if weighted is not None else (has_weights,) * len(self.keys)
        if len(self.weighted) != len(self.keys) or (any(self.weighted) and not has_weights):
            raise DataError(f"weighted {self.weighted} does not fit keys {self.keys} and weights {_shape(weights)}")

    @property
    def batch_size(self) -> int:
        """Number of samples B."""
        if self.bag_counts is not None:
            return self._batch_size if self._batch_size is not None else max(self.bag_counts, default=0)
        return self.lengths.numel() // len(self.keys) if self.keys else 0

    @property
    def lengths_by_feature(self) -> Tensor:
        """``lengths`` as ``[F, B]``, a view; not of a variable batch."""
        return self.lengths.view(len(self.keys), self.batch_size)

    @property
    def bag_lengths(self) -> tuple[Tensor, ...]:
        """The lengths of each feature's bags, ``[B]`` or ``[B_f]``, views."""
        if self.bag_counts is None:
            return tuple(self.lengths_by_feature)
        return tuple(self.lengths.split(list(self.bag_counts)))

    def count_ids(self) -> list[int]:
        """Return the number of ids of each feature."""
        if self.bag_counts is None:
            counts: list[int] = self.lengths_by_feature.sum(dim=1).tolist()
            return counts
        return [int(lengths.sum()) for lengths in self.bag_lengths]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "SparseFeatures":
        """Return the same features on ``device``."""
        moved = object.__new__(SparseFeatures)
        moved.keys, moved.weighted = self.keys, self.weighted
        moved.bag_counts, moved._batch_size = self.bag_counts, self._batch_size
        moved.lengths = self.lengths.to(device, non_blocking=non_blocking)
        moved.values = self.values.to(device, non_blocking=non_blocking)
        moved.weights = None if self.weights is None else self.weights.to(device, non_blocking=non_blocking)
        return moved


def _check_parts(
    keys: tuple[str, ...], lengths: Tensor, values: Tensor, weights: Tensor | None, bag_counts: Sequence[int] | None
) -> None:
    for name, part in (("lengths", lengths), ("values", values), ("weights", weights)):
        if part is not None and not isinstance(part, Tensor):
            raise DataError(f"sparse {name} must be a tensor, not {type(part).__name__}")
    for name, ids in (("lengths", lengths), ("values", values)):
        if ids.dtype not in (torch.int32, torch.int64):
            raise DataError(
                f"sparse {name} must be int32 or int64, not {ids.dtype}; convert them when the batch is built"
            )
        if ids.dim() != 1:
            raise DataError(f"sparse {name} must have one dimension, not shape {list(ids.shape)}")
    if len(set(keys)) != len(keys):
        raise DataError(f"sparse keys {keys} are not unique")
    if bag_counts is not None:
        _check_bag_counts(keys, lengths, bag_counts)
    elif keys and lengths.numel() % len(keys):
        raise DataError(f"{lengths.numel()} lengths do not divide over {len(keys)} keys {keys}")
    if not keys and lengths.numel():
        raise DataError(f"{lengths.numel()} lengths are given but no keys")
    if lengths.numel() and int(lengths.min()) < 0:
        position = int(lengths.argmin())
        bags = bag_counts if bag_counts is not None else [lengths.numel() // len(keys)] * len(keys)
        feature, sample = next(
            (f, position - first) for f, first in enumerate(_starts(bags)) if position < first + bags[f]
        )
        raise DataError(f"length {int(lengths[position])} of feature '{keys[feature]}', sample {sample} is negative")
    total = int(lengths.sum())
    if total != values.numel():
        raise DataError(f"the lengths add up to {total}, but there are {values.numel()} values")
    if weights is not None and weights.shape != values.shape:
        raise DataError(f"there are {values.numel()} values, but weights of shape {_shape(weights)}")
    if weights is not None and not weights.is_floating_point():
        raise DataError(f"weights must be floating point, not {weights.dtype}")
    if weights is not None and not bool(weights.isfinite().all()):
        raise DataError(f"weight {float(weights[~weights.isfinite()][0])} is not finite")


def _check_bag_counts(keys: tuple[str, ...], lengths: Tensor, bag_counts: Sequence[int]) -> None:
    if len(bag_counts) != len(keys):
        raise DataError(f"there are {len(bag_counts)} bag_counts for {len(keys)} keys {keys}")
    if any(count < 0 for count in bag_counts) or sum(bag_counts) != lengths.numel():
        raise DataError(f"bag_counts {tuple(bag_counts)} do not add up to the {lengths.numel()} lengths")


def _starts(counts: Sequence[int]) -> list[int]:
    return [sum(counts[:position]) for position in range(len(counts))]


def _shape(tensor: Tensor | None) -> str:
    return "none" if tensor is None else str(list(tensor.shape))


@dataclass(frozen=True)
class Batch:
    """One rank's part of a global batch.

    Attributes:
        dense: ``[B, num_dense]`` float32.
        sparse: The sparse features of the same B samples.
        labels: ``[B]`` float32 in [0, 1].
        index: Number of the global batch within the epoch, from 0.
        first_sample: Position in the global batch of this rank's first sample.
    """

    dense: Tensor
    sparse: SparseFeatures
    labels: Tensor
    index: int = 0
    first_sample: int = 0

    def __post_init__(self) -> None:
        samples = self.labels.numel()
        if self.dense.shape[0] != samples or (self.sparse.keys and self.sparse.batch_size != samples):
            raise DataError(
                f"batch {self.index}: {samples} labels, {self.dense.shape[0]} rows of dense features and "
                f"{self.sparse.batch_size} samples of sparse features do not agree"
            )
        legal = (self.labels >= 0) & (self.labels <= 1)  # NaN is not legal either
        if not bool(legal.all()):
            position = int((~legal).nonzero()[0])
            raise DataError(
                f"batch {self.index}: label {float(self.labels[position])} of sample "
                f"{self.first_sample + position} is outside [0, 1]"
            )

    @property
    def batch_size(self) -> int:
        """Number of samples of this rank."""
        return self.labels.numel()

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        """Return the same batch on ``device``."""
        moved = object.__new__(Batch)
        for name, value in (
            ("dense", self.dense.to(device, non_blocking=non_blocking)),
            ("sparse", self.sparse.to(device, non_blocking=non_blocking)),
            ("labels", self.labels.to(device, non_blocking=non_blocking)),
            ("index", self.index),
            ("first_sample", self.first_sample),
        ):
            object.__setattr__(moved, name, value)
        return moved


def split_evenly(total: int, rank: int, world_size: int) -> tuple[int, int]:
    """Return the half-open range of ``total`` samples that belongs to ``rank``; sizes differ by at most one."""
    return total * rank // world_size, total * (rank + 1) // world_size
