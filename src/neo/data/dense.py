"""Dense columns, vectorised: their transforms, and the checks that every value is a number that float32 can hold.

Shapes: B samples, D dense features, n rows.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from neo.data.columns import Place, check_float32, to_finite
from neo.data.reader import ArrowRows
from neo.data.schema import DenseColumn
from neo.data.spec import DenseTransform

SCALE_DENSE = "scale the column, or use data.dense_transform=log1p"


class DenseEncoder:
    """Makes ``[B, D]`` float32 of rows; what is missing is 0 after the transform."""

    def __init__(self, columns: Sequence[DenseColumn], transform: DenseTransform) -> None:
        self._columns = columns
        self._transform = transform

    def encode(self, rows: ArrowRows, place: Place) -> NDArray[np.float32]:
        """Return ``[B, D]``: one column at a time, so that it stays in the processor's cache.

        Raises:
            DataError: A value is no number, or not finite, or beyond float32; names file, place, column and value.
        """
        by_column = np.empty((len(self._columns), len(rows)), dtype=np.float32)
        for stored, column in zip(by_column, self._columns, strict=True):
            values, missing = _finite_column(rows, column.name, place)
            if self._transform is DenseTransform.LOG1P:
                np.maximum(values, 0.0, out=values)
                np.log1p(values, out=values)
            elif self._transform is DenseTransform.STANDARDIZE:
                values -= column.mean
                values /= column.deviation
            with np.errstate(over="ignore"):  # Told below, with its place.
                stored[:] = values
            if missing is not None:
                stored[missing] = 0.0
        if not np.isfinite(by_column).all():
            self._check_range(by_column, rows, place)
        return np.ascontiguousarray(by_column.T)

    def _check_range(self, dense: NDArray[np.float32], rows: ArrowRows, place: Place) -> None:
        """Refuse a value of the file that the transform left beyond float32."""
        for stored, column in zip(dense, self._columns, strict=True):
            given = to_finite(rows.column(column.name), column.name, place)
            check_float32(given, column.name, place, SCALE_DENSE, stored=stored)


def _finite_column(rows: ArrowRows, name: str, place: Place) -> tuple[NDArray[np.float64], NDArray[np.bool_] | None]:
    """Return ``[n]`` numbers, 0 where one is missing, and ``[n]`` flags of those. Raises as ``to_finite`` does."""
    plain = rows.plain.get(name)
    if plain is None:
        values = to_finite(rows.column(name), name, place)
        missing = np.isnan(values)
        return np.where(missing, 0.0, values), missing
    values = plain.values.astype(np.float64)
    if plain.missing is not None:
        values[plain.missing] = 0.0
    if not np.isfinite(values).all():
        to_finite(plain.arrow(), name, place)  # says where
    return values, plain.missing
