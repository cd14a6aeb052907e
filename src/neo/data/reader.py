"""What a reader gives, torch-free: rows that are read but not encoded yet, and samples in the combined format.

Shapes: F sparse features, B samples, D dense features, N ids in all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """Encoded samples in the combined format, as numpy arrays.

    Attributes:
        dense: ``[B, D]`` float32.
        labels: ``[B]`` float32; not checked yet.
        lengths: ``[F, B]`` int64.
        values: ``[N]`` int64, feature-major.
        weights: ``[N]`` float32, or None if no feature is weighted.
    """

    dense: NDArray[np.float32]
    labels: NDArray[np.float32]
    lengths: Positions
    values: Positions
    weights: NDArray[np.float32] | None

    def split(self, sizes: Sequence[int]) -> list["Samples"]:
        """Cut the samples into consecutive parts of these sizes."""
        num_features = self.lengths.shape[0]
        ends = np.cumsum(np.asarray(sizes, dtype=np.int64))
        bounds = np.concatenate([np.zeros(1, dtype=np.int64), ends])
        offsets = np.zeros(self.lengths.size + 1, dtype=np.int64)
        np.cumsum(self.lengths.reshape(-1), out=offsets[1:])
        num_samples = self.labels.size
        parts = []
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            spans = [
                slice(offsets[feature * num_samples + low], offsets[feature * num_samples + high])
                for feature in range(num_features)
            ]
            parts.append(
                Samples(
                    dense=self.dense[low:high],
                    labels=self.labels[low:high],
                    lengths=np.ascontiguousarray(self.lengths[:, low:high]),
                    values=_gather(self.values, spans),
                    weights=None if self.weights is None else _gather(self.weights, spans),
                )
            )
        return parts


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

    def blocks(self, *, order: np.random.Generator | None, limit: int | None) -> Iterator[Any]:
        """Yield the rows in blocks of bounded size.

        Args:
            order: Permutes the parts of the data that can be read in any order; None keeps their order.
            limit: Read only the first so many samples, whatever their order.

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
        table: The columns, one chunk each.
        files: ``[n]`` index of the file of each row.
        numbers: ``[n]`` number of each row in its file, from 0.
    """

    table: Any
    files: NDArray[np.int32]
    numbers: Positions

    @classmethod
    def of(cls, table: Any, *, file: int, first: int) -> "ArrowRows":
        """Wrap consecutive rows of one file, the first of which is row ``first`` of it."""
        count = table.num_rows
        return cls(table, np.full(count, file, dtype=np.int32), np.arange(first, first + count, dtype=np.int64))

    def __len__(self) -> int:
        return int(self.numbers.size)

    def take(self, positions: Positions) -> "ArrowRows":
        """Return the rows at these positions, in this order."""
        return ArrowRows(self.table.take(pa.array(positions)), self.files[positions], self.numbers[positions])

    def slice(self, start: int, stop: int) -> "ArrowRows":
        """Return a range of the rows, without a copy."""
        return ArrowRows(self.table.slice(start, stop - start), self.files[start:stop], self.numbers[start:stop])

    def append(self, more: Sequence["ArrowRows"]) -> "ArrowRows":
        """Return these rows followed by ``more``."""
        if not more:
            return self
        parts = [self, *more]
        return ArrowRows(
            pa.concat_tables([part.table for part in parts]).combine_chunks(),
            np.concatenate([part.files for part in parts]),
            np.concatenate([part.numbers for part in parts]),
        )

    def column(self, name: str) -> Any:
        """Return a column as one Arrow array."""
        chunked = self.table.column(name)
        return chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()
