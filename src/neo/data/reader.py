"""What a reader gives, torch-free: rows that are read but not encoded yet, and samples in the combined format.

Shapes: F sparse features, B samples, D dense features, N ids in all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from neo.data.plain import PlainColumn

T = TypeVar("T", bound=np.generic)

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """Encoded samples in the combined format, as numpy arrays.

    Attributes:
        dense: ``[B, D]`` float32.
        labels: ``[B]`` float32; not checked yet.
        num_features: F.
        lengths: ``[F, B]`` int64; None where every bag holds one id.
        values: ``[N]`` int64, feature-major.
        weights: ``[N]`` float32, or None if no feature is weighted.
    """

    dense: NDArray[np.float32]
    labels: NDArray[np.float32]
    num_features: int
    lengths: Positions | None
    values: Positions
    weights: NDArray[np.float32] | None

    def split(self, sizes: Sequence[int]) -> list["Samples"]:
        """Cut the samples into consecutive parts of these sizes; ``lengths`` of a part is never None."""
        num_samples = self.labels.size
        bounds = [0, *np.cumsum(np.asarray(sizes, dtype=np.int64)).tolist()]
        if self.lengths is None:
            return [self._part_of_single_ids(low, high) for low, high in pairwise(bounds)]
        offsets = self._offsets(self.lengths, bounds)
        parts = []
        for part, (low, high) in enumerate(pairwise(bounds)):
            spans = [slice(begin, end) for begin, end in offsets[:, part : part + 2].tolist()]
            whole = low == 0 and high == num_samples
            parts.append(
                Samples(
                    dense=self.dense[low:high],
                    labels=self.labels[low:high],
                    num_features=self.num_features,
                    lengths=np.ascontiguousarray(self.lengths[:, low:high]),
                    values=self.values if whole else _gather(self.values, spans),
                    weights=self.weights if whole or self.weights is None else _gather(self.weights, spans),
                )
            )
        return parts

    def _part_of_single_ids(self, low: int, high: int) -> "Samples":
        """Return a range of the samples where every bag holds one id."""
        shape = (self.num_features, self.labels.size)
        weights = self.weights
        return Samples(
            dense=self.dense[low:high],
            labels=self.labels[low:high],
            num_features=self.num_features,
            lengths=np.ones((self.num_features, high - low), dtype=np.int64),
            values=np.ascontiguousarray(self.values.reshape(shape)[:, low:high]).reshape(-1),
            weights=None if weights is None else np.ascontiguousarray(weights.reshape(shape)[:, low:high]).reshape(-1),
        )

    def _offsets(self, lengths: Positions, bounds: Sequence[int]) -> Positions:
        """Return ``[F, len(bounds)]``: where in ``values`` the bags of these samples begin."""
        num_samples = self.labels.size
        ends = np.zeros((self.num_features, num_samples + 1), dtype=np.int64)
        np.cumsum(lengths, axis=1, out=ends[:, 1:])
        starts = np.cumsum(ends[:, -1]) - ends[:, -1]
        return starts[:, None] + ends[:, list(bounds)]


def _gather(values: NDArray[T], spans: list[slice]) -> NDArray[T]:
    return np.concatenate([values[span] for span in spans]) if spans else values[:0]


class Rows(Protocol):
    """Rows of the data that are read but not encoded: cheap to select from."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def take(self, positions: Positions) -> Self:
        """Return the rows at these positions, in this order."""
        ...

    def slice(self, start: int, stop: int) -> Self:
        """Return a range of the rows, without a copy."""
        ...

    def append(self, more: Sequence[Self]) -> Self:
        """Return these rows followed by ``more``."""
        ...


class Encoder(Protocol):
    """Turns rows into samples; the expensive part, which a rank does for its own rows only."""

    def encode(self, rows: Any) -> Samples:
        """Return the samples of ``rows``, in their order.

        Raises:
            DataError: A value is not what the configuration says; names its place.
        """
        ...


class Reader(Protocol):
    """The rows of one split, in blocks."""

    def num_samples(self) -> int | None:
        """Return the number of samples, None where only reading everything would tell."""
        ...

    def blocks(self, *, order: np.random.Generator | None, limit: int | None, raw: bool = False) -> Iterator[Any]:
        """Yield the rows in blocks of bounded size.

        Args:
            order: Permutes the parts of the data that can be read in any order; None keeps their order.
            limit: Read only the first so many samples, whatever their order.
            raw: Keep the ids as they are written: the learning pass wants them.

        Raises:
            DataError: A file cannot be read; names file and place.
        """
        ...

    def place(self, rows: Any, position: int) -> str:
        """Say where row ``position`` of ``rows`` comes from: file and line, or file and row group."""
        ...

    def encoder(self, schema: Any, *, seed: int) -> Encoder:
        """Return what encodes the rows of this reader by ``schema``."""
        ...


@dataclass(frozen=True)
class ArrowRows:
    """Rows of an Arrow table that remember where they come from.

    Attributes:
        table: The columns that are not plain, one chunk each.
        files: ``[n]`` index of the file of each row.
        numbers: ``[n]`` number of each row in its file, from 0.
        plain: The plain columns.
    """

    table: Any
    files: NDArray[np.int32]
    numbers: Positions
    plain: Mapping[str, PlainColumn] = field(default_factory=dict)

    @classmethod
    def of(
        cls, table: Any, *, file: int, first: int, count: int, plain: Mapping[str, PlainColumn] | None = None
    ) -> "ArrowRows":
        """Wrap ``count`` consecutive rows of one file, the first of which is row ``first`` of it."""
        numbers = np.arange(first, first + count, dtype=np.int64)
        return cls(table, np.full(count, file, dtype=np.int32), numbers, {} if plain is None else plain)

    def __len__(self) -> int:
        return int(self.numbers.size)

    def take(self, positions: Positions) -> "ArrowRows":
        """Return the rows at these positions, in this order."""
        table = self.table.take(pa.array(positions)) if self.table.num_columns else self.table
        plain = {name: column.take(positions) for name, column in self.plain.items()}
        return ArrowRows(table, self.files[positions], self.numbers[positions], plain)

    def slice(self, start: int, stop: int) -> "ArrowRows":
        """Return a range of the rows, without a copy."""
        table = self.table.slice(start, stop - start) if self.table.num_columns else self.table
        plain = {name: column.slice(start, stop) for name, column in self.plain.items()}
        return ArrowRows(table, self.files[start:stop], self.numbers[start:stop], plain)

    def append(self, more: Sequence["ArrowRows"]) -> "ArrowRows":
        """Return these rows followed by ``more``."""
        if not more:
            return self
        parts = [self, *more]
        table = self.table
        if table.num_columns:
            table = pa.concat_tables([part.table for part in parts], promote_options="permissive").combine_chunks()
        return ArrowRows(
            table,
            np.concatenate([part.files for part in parts]),
            np.concatenate([part.numbers for part in parts]),
            {name: column.append([part.plain[name] for part in more]) for name, column in self.plain.items()},
        )

    def column(self, name: str) -> Any:
        """Return a column as one Arrow array, a plain one with a copy."""
        if name in self.plain:
            return self.plain[name].arrow()
        chunked = self.table.column(name)
        return chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()
