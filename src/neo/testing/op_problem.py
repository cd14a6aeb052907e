"""Random inputs for one pooled lookup, and what it has to make of them, in float64 NumPy.

Shapes: S slots, B bags per slot, N ids, D columns of one table, O columns of all slots.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neo.ops.pooled_lookup import LocalTable
from neo.optim.spec import SparseOptimizerSpec
from neo.testing.reference_optimizers import ReferenceOptimizer

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class OpInput:
    """What one step reads.

    Attributes:
        lengths: ``[S, B]`` ids per bag.
        values: ``[N]`` local rows, slot by slot, bag by bag.
        factors: ``[N]`` factors of the ids, or None.
        gradient: ``[B, O]`` gradient of the output.
    """

    lengths: Ints
    values: Ints
    factors: Floats | None
    gradient: Floats

    @property
    def offsets(self) -> Ints:
        """Where each bag begins among ``values``, ``[S * B + 1]``."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)


def dyadic(random: np.random.Generator, *shape: int) -> Floats:
    """Return multiples of 1/8 in [-1, 1]: their sums and products are exact in float32, in any order."""
    return random.integers(-8, 9, shape) / 8


def random_input(
    random: np.random.Generator,
    tables: Sequence[LocalTable],
    slots: Sequence[int],
    *,
    num_bags: int,
    max_length: int,
    weighted: bool,
) -> OpInput:
    """Return bags of 0 to ``max_length`` ids, everything from a dyadic grid."""
    lengths = random.integers(0, max_length + 1, (len(slots), num_bags))
    counts = lengths.sum(axis=1)
    ids = [random.integers(0, tables[table].num_rows, count) for table, count in zip(slots, counts, strict=True)]
    values = np.concatenate(ids).astype(np.int64)
    factors = dyadic(random, len(values)) if weighted else None
    width = sum(tables[table].num_columns for table in slots)
    return OpInput(lengths, values, factors, dyadic(random, num_bags, width))


class OpReference:
    """A pooled lookup in float64.

    Args:
        tables: The local tables.
        slots: Which table each slot reads.
        optimizer: Their optimizer.
        weights: Initial weights ``[rows, D]`` per table; copied.
    """

    def __init__(
        self,
        tables: Sequence[LocalTable],
        slots: Sequence[int],
        optimizer: SparseOptimizerSpec,
        weights: Sequence[Floats],
    ) -> None:
        self.tables, self.slots = tuple(tables), tuple(slots)
        self.weights = [np.array(weight, dtype=np.float64) for weight in weights]
        self.optimizers = [ReferenceOptimizer(optimizer, t.num_rows, t.num_columns) for t in tables]
        self._steps = 0

    def set_learning_rate(self, lr: float) -> None:
        """Use ``lr`` from the next step on."""
        for optimizer in self.optimizers:
            optimizer.lr = lr

    def forward(self, given: OpInput) -> Floats:
        """Return the sums ``[B, O]``."""
        outputs = []
        for slot, part, samples, _ in self._slots(given):
            rows = self.weights[self.slots[slot]][given.values[part]]
            if given.factors is not None:
                rows = rows * given.factors[part, None]
            sums = np.zeros((given.lengths.shape[1], rows.shape[1]))
            np.add.at(sums, samples, rows)
            outputs.append(sums)
        return np.concatenate(outputs, axis=1)

    def factors_gradient(self, given: OpInput) -> Floats:
        """Return the gradient ``[N]`` of the factors, with the weights as they are."""
        result = np.zeros(len(given.values))
        for slot, part, samples, columns in self._slots(given):
            rows = self.weights[self.slots[slot]][given.values[part]]
            result[part] = (rows * given.gradient[:, columns][samples]).sum(axis=1)
        return result

    def step(self, given: OpInput) -> None:
        """Apply one optimizer step with all duplicates merged."""
        self._steps += 1
        totals = [np.zeros_like(weight) for weight in self.weights]
        touched = [np.zeros(len(weight), dtype=bool) for weight in self.weights]
        for slot, part, samples, columns in self._slots(given):
            rows = given.gradient[:, columns][samples]
            if given.factors is not None:
                rows = rows * given.factors[part, None]
            np.add.at(totals[self.slots[slot]], given.values[part], rows)
            touched[self.slots[slot]][given.values[part]] = True
        for weight, optimizer, total, marks in zip(self.weights, self.optimizers, totals, touched, strict=True):
            ids: Ints = np.flatnonzero(marks).astype(np.int64)
            optimizer.step(weight, ids, total[ids], self._steps)

    def _slots(self, given: OpInput) -> list[tuple[int, slice, Ints, slice]]:
        """Return each slot with its part of the ids, the sample of each of them, and its output columns."""
        result = []
        id_begin = column = 0
        for slot, table in enumerate(self.slots):
            count = int(given.lengths[slot].sum())
            samples = np.repeat(np.arange(given.lengths.shape[1]), given.lengths[slot])
            width = self.tables[table].num_columns
            result.append((slot, slice(id_begin, id_begin + count), samples, slice(column, column + width)))
            id_begin, column = id_begin + count, column + width
        return result
