"""The combined format: one lengths and one values tensor for all sparse features of a batch.

Shapes: F features, B samples, N ids in all. ``lengths`` is feature-major ``[F * B]``: the bag of feature f and
sample b has ``lengths[f * B + b]`` ids, and ``values`` ``[N]`` holds the bags in that order.
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
    ) -> None:
        if isinstance(keys, str):
            raise DataError(f"sparse keys must be a list of names, not the text '{keys}'")
        self.keys = tuple(keys)
        _check_parts(self.keys, lengths, values, weights)
        self.lengths = lengths.to(torch.int64)
        self.values = values.to(torch.int64)
        self.weights = None if weights is None else weights.to(torch.float32)
        has_weights = weights is not None
        self.weighted = tuple(weighted) if weighted is not None else (has_weights,) * len(self.keys)
        if len(self.weighted) != len(self.keys) or (any(self.weighted) and not has_weights):
            raise DataError(f"weighted {self.weighted} does not fit keys {self.keys} and weights {_shape(weights)}")

    @property
    def batch_size(self) -> int:
        """Number of samples B."""
        return self.lengths.numel() // len(self.keys) if self.keys else 0

    @property
    def lengths_by_feature(self) -> Tensor:
        """``lengths`` as ``[F, B]``, a view."""
        return self.lengths.view(len(self.keys), self.batch_size)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "SparseFeatures":
        """Return the same features on ``device``."""
        moved = object.__new__(SparseFeatures)
        moved.keys, moved.weighted = self.keys, self.weighted
        moved.lengths = self.lengths.to(device, non_blocking=non_blocking)
        moved.values = self.values.to(device, non_blocking=non_blocking)
        moved.weights = None if self.weights is None else self.weights.to(device, non_blocking=non_blocking)
        return moved


def _check_parts(keys: tuple[str, ...], lengths: Tensor, values: Tensor, weights: Tensor | None) -> None:
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
    if keys and lengths.numel() % len(keys):
        raise DataError(f"{lengths.numel()} lengths do not divide over {len(keys)} keys {keys}")
    if not keys and lengths.numel():
        raise DataError(f"{lengths.numel()} lengths are given but no keys")
    if lengths.numel() and int(lengths.min()) < 0:
        position = int(lengths.argmin())
        batch_size = lengths.numel() // len(keys)
        raise DataError(
            f"length {int(lengths[position])} of feature '{keys[position // batch_size]}', "
            f"sample {position % batch_size} is negative"
        )
    total = int(lengths.sum())
    if total != values.numel():
        raise DataError(f"the lengths add up to {total}, but there are {values.numel()} values")
    if weights is not None and weights.shape != values.shape:
        raise DataError(f"there are {values.numel()} values, but weights of shape {_shape(weights)}")
    if weights is not None and not weights.is_floating_point():
        raise DataError(f"weights must be floating point, not {weights.dtype}")
    if weights is not None and not bool(weights.isfinite().all()):
        raise DataError(f"weight {float(weights[~weights.isfinite()][0])} is not finite")


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
