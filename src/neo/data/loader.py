"""Global batches, cut over the ranks: every rank sees the same order of samples and encodes only its own.

A global batch of G samples is the same set in the same order for every world size. Rank r takes the range
``split_evenly(n, r, W)`` of its n samples; the last batch of an epoch may be smaller.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from neo.data.batch import Batch, SparseFeatures, split_evenly
from neo.data.columns import wrong_label
from neo.data.readahead import ReadAhead
from neo.data.reader import Encoder, Positions, Reader, Samples
from neo.data.schema import DataSchema
from neo.data.spec import READERS, DataSpec, Split
from neo.data.synthetic import Attainable, attainable_quality
from neo.errors import DataError

_READ_AHEAD_BATCHES = 4
_UNSHUFFLED_WINDOW = 32_768
_ENCODED_ROWS = 16_384


@dataclass(frozen=True)
class _Group:
    """Consecutive global batches that are encoded together.

    Attributes:
        rows: Rows that hold all samples of these batches.
        sequence: Positions in ``rows``, in the order of the samples.
        sizes: Samples of each batch over all ranks.
        first_index: Number of the first batch in its epoch.
    """

    rows: Any
    sequence: Positions
    sizes: list[int]
    first_index: int


class GlobalBatchLoader:
    """This rank's part of every global batch; iterating again gives the next epoch.

    Args:
        data: The data.
        schema: What was learned from the training data.
        split: ``train`` or ``val``; validation samples are never shuffled.
        global_batch_size: Samples of a batch over all ranks.
        rank: This rank.
        world_size: Number of ranks.
        seed: Decides the order, together with the epoch.
        limit_samples: Read only the first so many samples.
        needs_label: Whether the label column is read; without it every label is 0, and files may lack it.

    Raises:
        DataError: A file is missing, empty or broken, or lacks a column.
    """

    def __init__(
        self,
        data: DataSpec,
        schema: DataSchema,
        *,
        split: str,
        global_batch_size: int,
        rank: int,
        world_size: int,
        seed: int,
        limit_samples: int | None = None,
        needs_label: bool = True,
    ) -> None:
        if not needs_label:
            data = replace(data, label=None)
        self._schema = schema
        self._label = data.label
        self._num_workers = data.num_workers
        self._split = Split(split)
        self._global_batch_size = global_batch_size
        self._rank, self._world_size = rank, world_size
        self._seed = seed
        self._limit = limit_samples
        self._shuffle = data.shuffle and self._split is Split.TRAIN
        self._window = data.shuffle_window if self._shuffle else _UNSHUFFLED_WINDOW
        self._reader: Reader = READERS.get(data.name)(data, self._split)
        self._encoder: Encoder = self._reader.encoder(schema, seed=seed)
        self._num_samples = self._count()
        self._epoch = 0
        self._first_sample = 0

    def _count(self) -> int | None:
        total = self._reader.num_samples()
        if total is None and self._split is Split.TRAIN:
            total = self._schema.num_samples
        return total if total is None or self._limit is None else min(total, self._limit)

    @property
    def num_samples(self) -> int | None:
        """Samples of an epoch over all ranks, None where only reading everything would tell."""
        return self._num_samples

    @property
    def has_labels(self) -> bool:
        """Whether the labels of the batches are those of the data; zeros stand for them if not."""
        return self._label is not None

    @property
    def global_batch_size(self) -> int:
        """Samples of a full batch over all ranks."""
        return self._global_batch_size

    def __len__(self) -> int:
        """Return the number of global batches of an epoch.

        Raises:
            TypeError: It is not known before everything is read.
        """
        if self._num_samples is None:
            raise TypeError(f"the number of {self._split} samples is not known before all files are read")
        return -(-self._num_samples // self._global_batch_size)

    def batches_before(self, sample: int) -> int:
        """Return how many batches an epoch that goes on at ``sample`` has behind it; with the rest they are all."""
        if self._num_samples is None:
            return sample // self._global_batch_size
        return len(self) - -(-(self._num_samples - sample) // self._global_batch_size)

    def set_epoch(self, epoch: int, *, first_sample: int = 0) -> None:
        """Let the next iteration be this epoch, counted from 0, without its first samples."""
        self._epoch, self._first_sample = epoch, first_sample

    def __iter__(self) -> Iterator[Batch]:
        epoch, first = self._epoch, self._first_sample
        self.set_epoch(epoch + 1)
        batches = self._batches(epoch, first)
        if self._num_workers == 0:
            return batches
        return ReadAhead(batches, depth=_READ_AHEAD_BATCHES, name=f"neo-read-{self._split}")

    def _batches(self, epoch: int, first: int) -> Iterator[Batch]:
        """Yield this rank's batches: groups are read one after the other, and encoded by so many threads as there are.

        Batches come in order, and are the same for every number of threads.
        """
        groups = self._groups(epoch, first)
        if self._num_workers < 2:
            for group in groups:
                yield from self._own_parts(group)
            return
        encoders = self._num_workers - 1  # this one reads
        pool = ThreadPoolExecutor(encoders, thread_name_prefix=f"neo-encode-{self._split}")
        ahead: deque[Future[list[Batch]]] = deque()
        try:
            for group in groups:
                ahead.append(pool.submit(self._own_parts, group))
                if len(ahead) > encoders:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _groups(self, epoch: int, first: int) -> Iterator[_Group]:
        """Read windows, cut all complete global batches out of them, and carry the rest over.

        The order of an epoch's samples depends on seed, epoch and window alone, so that any batch size can go on at
        any sample. What lies before ``first`` is read and shuffled, but not encoded.
        """
        index, size = self.batches_before(first), self._global_batch_size
        order = np.random.default_rng([self._seed & (2**63 - 1), epoch]) if self._shuffle else None
        rows: Any = None
        sequence = np.empty(0, dtype=np.int64)  # positions in rows, in the order of the samples
        for parts in self._windows(order):
            num_new = sum(map(len, parts))
            fresh = np.arange(num_new)
            if order is not None:
                order.shuffle(fresh)
            skipped = min(first, num_new)
            first -= skipped
            if skipped == num_new:
                continue
            carried = [rows.take(sequence)] if sequence.size else []
            num_carried = sum(map(len, carried))
            rows = _joined([*carried, *parts])
            sequence = np.concatenate([np.arange(num_carried), num_carried + fresh[skipped:]])
            complete = sequence.size // size
            for count in self._group_sizes(complete):
                yield _Group(rows, sequence[: count * size], [size] * count, index)
                index += count
                sequence = sequence[count * size :]
        if rows is None:
            raise DataError(f"there are no {self._split} samples" + (" where this run would go on" if index else ""))
        if sequence.size:
            yield _Group(rows, sequence, [sequence.size], index)

    def _group_sizes(self, num_batches: int) -> list[int]:
        """Return how many batches are encoded at a time: enough to be fast, few enough for the processor's cache."""
        own = -(-self._global_batch_size // self._world_size)
        count = max(1, _ENCODED_ROWS // own)
        return [min(count, num_batches - done) for done in range(0, num_batches, count)]

    def _windows(self, order: np.random.Generator | None) -> Iterator[list[Any]]:
        """Yield the rows in windows of one size, each in parts."""
        parts: list[Any] = []
        held = 0
        for block in self._reader.blocks(order=order, limit=self._limit):
            rows = block
            while held + len(rows) >= self._window:
                room = self._window - held
                yield [*parts, rows.slice(0, room)]
                rows = rows.slice(room, len(rows))
                parts, held = [], 0
            if len(rows):
                parts.append(rows)
                held += len(rows)
        if held:
            yield parts

    def _own_parts(self, group: _Group) -> list[Batch]:
        """Encode this rank's samples of consecutive global batches in one go."""
        ranges = [split_evenly(size, self._rank, self._world_size) for size in group.sizes]
        starts = np.cumsum([0, *group.sizes[:-1]]).tolist()
        spans = [group.sequence[start + low : start + high] for start, (low, high) in zip(starts, ranges, strict=True)]
        own = group.rows.take(np.concatenate(spans))
        samples = self._encoder.encode(own)
        self._check_labels(samples, own, group)
        parts = samples.split([high - low for low, high in ranges])
        numbered = enumerate(zip(parts, ranges, strict=True), start=group.first_index)
        return [self._batch(part, index, low) for index, (part, (low, _)) in numbered]

    def _check_labels(self, samples: Samples, rows: Any, group: _Group) -> None:
        """Refuse a label that is missing or outside [0, 1], naming batch, sample, file and place."""
        wrong = wrong_label(samples.labels)
        if wrong is None:
            return
        at, fault = wrong
        left = at
        for index, size in enumerate(group.sizes, start=group.first_index):
            low, high = split_evenly(size, self._rank, self._world_size)
            if left < high - low:
                where = f"{self._reader.place(rows, at)}: column '{self._label}'"
                raise DataError(f"{where}: {fault} (batch {index}, sample {low + left})")
            left -= high - low

    def _batch(self, part: Samples, index: int, first_sample: int) -> Batch:
        assert part.lengths is not None
        weights = None if part.weights is None else torch.from_numpy(part.weights)
        flags = None
        if weights is not None:
            flags = tuple(column.weights is not None for column in self._schema.sparse)
        sparse = SparseFeatures(
            tuple(column.name for column in self._schema.sparse),
            torch.from_numpy(part.lengths.reshape(-1)),
            torch.from_numpy(part.values),
            weights,
            flags,
        )
        dense = torch.from_numpy(np.ascontiguousarray(part.dense))
        return Batch(dense, sparse, torch.from_numpy(part.labels), index, first_sample)


def _joined(parts: list[Any]) -> Any:
    return parts[0].append(parts[1:])


def make_loader(
    data: DataSpec,
    schema: DataSchema,
    *,
    split: str,
    global_batch_size: int,
    rank: int,
    world_size: int,
    seed: int,
    limit_samples: int | None = None,
    needs_label: bool = True,
) -> GlobalBatchLoader | None:
    """Return the loader of a split, None if the data has no such split. Raises as ``GlobalBatchLoader`` does."""
    if Split(split) is Split.VAL and not data.has_validation:
        return None
    return GlobalBatchLoader(
        data,
        schema,
        split=split,
        global_batch_size=global_batch_size,
        rank=rank,
        world_size=world_size,
        seed=seed,
        limit_samples=limit_samples,
        needs_label=needs_label,
    )


def attainable(data: DataSpec, schema: DataSchema, seed: int) -> Attainable | None:
    """Return the best quality that a model can reach on the validation samples, None where it is not known."""
    return attainable_quality(data, schema, seed=seed) if data.is_generated and data.has_validation else None
