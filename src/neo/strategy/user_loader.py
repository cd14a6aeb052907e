"""A user's own loader under NeoStrategy: dealt over the ranks, and kept in step with the other ranks'."""

from collections.abc import Iterable, Mapping, Sized
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from neo.comms.collectives import Collectives
from neo.data.aligned import AlignedLoader, empty_like
from neo.data.batch import Batch, SparseFeatures
from neo.data.spec import Uneven
from neo.errors import UnsupportedError


class InStepLoader(AlignedLoader[Any]):
    """An ``AlignedLoader`` as Lightning wants it: with a length where there is one, and with the user's samplers.

    Every rank makes one at the same time.

    Args:
        loader: The user's loader of this rank.
        policy: What happens when the ranks' numbers of batches differ.
        collectives: Reaches the other ranks.
    """

    def __init__(self, loader: Iterable[Any], *, policy: Uneven, collectives: Collectives) -> None:
        super().__init__(loader, policy=policy, collectives=collectives, empty=empty_batch)
        self.loader = loader
        self._length = _common_length(collectives.all_gather_object(_length_of(loader)), policy)

    def __len__(self) -> int:
        """Return the number of batches that every rank will see. Raises TypeError if it is not known."""
        if self._length is None:
            raise TypeError("the number of batches is not known before they are read")
        return self._length

    @property
    def sampler(self) -> object:
        """The loader's sampler, whose epoch Lightning sets."""
        return getattr(self.loader, "sampler", None)

    @property
    def batch_sampler(self) -> object:
        """The loader's batch sampler, whose sampler's epoch Lightning sets."""
        return getattr(self.loader, "batch_sampler", None)


def empty_batch(batch: Any) -> Any:
    """Return a batch of the same kind without samples: every tensor in it is cut to length 0.

    Raises:
        UnsupportedError: The batch holds something that cannot be cut.
    """
    match batch:
        case Batch():
            return empty_like(batch)
        case SparseFeatures():
            weights = None if batch.weights is None else batch.weights[:0]
            return SparseFeatures(batch.keys, batch.lengths[:0], batch.values[:0], weights, batch.weighted)
        case Tensor() if batch.dim() > 0:
            return batch[:0]
        case Mapping():
            return {key: empty_batch(value) for key, value in batch.items()}
        case tuple() if hasattr(batch, "_fields"):
            return type(batch)(*(empty_batch(value) for value in batch))
        case list() | tuple():
            return type(batch)(empty_batch(value) for value in batch)
        case _ if is_dataclass(batch) and not isinstance(batch, type):
            parts = {part.name: getattr(batch, part.name) for part in fields(batch) if part.init}
            return replace(batch, **{name: empty_batch(value) for name, value in parts.items()})
        case None | int() | float() | str() | torch.dtype() | torch.device():
            return batch
    raise UnsupportedError(f"uneven=pad cannot make an empty batch of a {type(batch).__name__}; use uneven=stop")


def _length_of(loader: object) -> int | None:
    try:
        return len(loader) if isinstance(loader, Sized) else None
    except (TypeError, NotImplementedError):
        return None


def _common_length(lengths: list[object], policy: Uneven) -> int | None:
    known = [length for length in lengths if isinstance(length, int)]
    if len(known) < len(lengths) or (policy is Uneven.ERROR and len(set(known)) > 1):
        return None  # if unequal numbers are an error, it is raised where they are counted
    return max(known) if policy is Uneven.PAD else min(known)
