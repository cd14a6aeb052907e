"""Local tables of one shape of columns, in one storage: looked up together, merged by one sort, updated in blocks.

Shapes: T tables of the group, R rows of all of them, D columns, S slots that read them, B bags per slot, N ids of
these slots, U touched rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neo.ops.pooled_lookup import LocalTable
from neo.ops.reference.bags import blocks, rows_per_block, sum_bags
from neo.optim.rounding import RandomBits, column_hashes, row_hashes, table_salt
from neo.optim.sparse import State, create_row_optimizer
from neo.optim.spec import SparseOptimizerSpec
from neo.tables.spec import WeightsDtype

WEIGHT_DTYPES = {
    WeightsDtype.FP32: torch.float32,
    WeightsDtype.FP16: torch.float16,
    WeightsDtype.BF16: torch.bfloat16,
}


@dataclass(frozen=True)
class GroupBags:
    """What the slots of a group read.

    Attributes:
        rows: ``[N]`` int64 rows of the group's storage, slot by slot, bag by bag.
        offsets: ``[S * B + 1]`` int64 where each bag begins among ``rows``.
        factors: ``[N]`` float32 or None.
    """

    rows: Tensor
    offsets: Tensor
    factors: Tensor | None

    def bag_of_each(self, numbers: Tensor) -> Tensor:
        """Return ``numbers`` ``[S * B]`` of each id's bag, ``[N]``."""
        return numbers.repeat_interleave(self.offsets.diff(), output_size=self.rows.numel())


@dataclass(frozen=True)
class Touched:
    """The touched rows of a group, and where their gradients come from.

    Attributes:
        rows: ``[U]`` int64 rows of the storage, ascending, each once.
        offsets: ``[U + 1]`` int64 where each row's ids begin among ``sources``.
        sources: ``[N]`` int64 which row of the gradient each id takes, by touched row, else in the order of the batch.
        factors: ``[N]`` float32 or None.
        gradient: ``[S * B, D]`` float32, a row per bag.
    """

    rows: Tensor
    offsets: Tensor
    sources: Tensor
    factors: Tensor | None
    gradient: Tensor

    def merged(self, part: slice, bounds: tuple[int, int]) -> Tensor:
        """Return the gradient of ``rows[part]``, duplicates summed; ``bounds`` are those of its ids."""
        ids = slice(*bounds)
        factors = None if self.factors is None else self.factors[ids]
        offsets = self.offsets[part.start : part.stop + 1] - bounds[0]
        return sum_bags(self.gradient, self.sources[ids], offsets, factors)


class TableGroup:
    """See the module.

    Args:
        tables: The T tables, all with the same columns.
        optimizer: Their optimizer.
        device: Where they live.
        seed: Decides random rounding.
    """

    def __init__(
        self, tables: Sequence[LocalTable], *, optimizer: SparseOptimizerSpec, device: torch.device, seed: int
    ) -> None:
        self.width = tables[0].num_columns
        self._device = device
        counts = [table.num_rows for table in tables]
        self.starts = [sum(counts[:index]) for index in range(len(counts) + 1)]
        self._optimizer = create_row_optimizer(optimizer)
        dtype = WEIGHT_DTYPES[optimizer.weights_dtype]
        self._weight = torch.zeros(self.starts[-1], self.width, dtype=dtype, device=device)
        self._state = self._optimizer.create_state(self.starts[-1], self.width, device)
        self.weights = list(self._weight.split(counts))
        parts = {name: value.split(counts) for name, value in self._state.items()}
        self.states: list[State] = [{name: part[index] for name, part in parts.items()} for index in range(len(tables))]
        self._salts: Tensor | None = None
        if optimizer.rounds_stochastically:
            self._salts = torch.tensor([table_salt(seed, table.key) for table in tables], device=device)
            self._starts = torch.tensor(self.starts[1:-1], dtype=torch.int64, device=device)
            self._shifts = torch.tensor(
                [table.first_row - start for table, start in zip(tables, self.starts, strict=False)], device=device
            )
            self._columns = column_hashes(tables[0].first_column, self.width, device)

    def pool(self, bags: GroupBags) -> Tensor:
        """Return the sums of all bags, ``[S * B, D]`` float32."""
        return sum_bags(self._weight, bags.rows, bags.offsets, bags.factors)

    def factors_gradient(self, bags: GroupBags, gradient: Tensor, sources: Tensor) -> Tensor:
        """Return the gradient ``[N]`` of the factors, for a ``gradient`` ``[S * B, D]`` with a row per bag.

        ``sources`` ``[S * B]`` is the row of each bag.
        """
        of_each = bags.bag_of_each(sources)
        result = torch.empty(bags.rows.numel(), dtype=torch.float32, device=self._device)
        for part in blocks(bags.rows.numel(), rows_per_block(self.width, self._device)):
            rows = self._weight.index_select(0, bags.rows[part]).float()
            result[part] = rows.mul_(gradient.index_select(0, of_each[part])).sum(dim=1)
        return result

    def touched(self, bags: GroupBags, gradient: Tensor, sources: Tensor) -> Touched:
        """Sort the ids; arguments as of ``factors_gradient``."""
        rows = bags.rows if self.starts[-1] >= 2**31 else bags.rows.int()  # half the passes of a radix sort
        ordered, order = rows.sort(stable=True)
        is_first = torch.ones(ordered.numel() + 1, dtype=torch.bool, device=self._device)
        torch.ne(ordered[1:], ordered[:-1], out=is_first[1:-1]) if ordered.numel() else None
        offsets = is_first.nonzero().flatten() if ordered.numel() else torch.zeros_like(is_first, dtype=torch.int64)
        return Touched(
            rows=ordered.index_select(0, offsets[:-1]).long(),
            offsets=offsets,
            sources=bags.bag_of_each(sources).index_select(0, order),
            factors=None if bags.factors is None else bags.factors.index_select(0, order),
            gradient=gradient,
        )

    def merge(self, touched: Touched) -> Tensor:
        """Return the merged gradient ``[U, D]`` of all touched rows."""
        return touched.merged(slice(0, touched.rows.numel()), (0, touched.sources.numel()))

    def add_l2(self, rows: Tensor, gradient: Tensor) -> Tensor:
        """Return ``gradient`` ``[U, D]`` with L2 weight decay added."""
        return self._optimizer.add_l2(self._weight, rows, gradient)

    def step_touched(self, touched: Touched, lr: float, step: int) -> None:
        """Merge, decay and update, a block of rows at a time."""
        bits = self._random_bits(touched.rows, step)
        parts = list(blocks(touched.rows.numel(), rows_per_block(self.width, self._device)))
        bounds = touched.offsets[[part.start for part in parts]].tolist() if parts else []
        for part, bound in zip(
            parts, zip(bounds, [*bounds[1:], touched.sources.numel()][: len(bounds)], strict=True), strict=True
        ):
            rows = touched.rows[part]
            gradient = touched.merged(part, bound)
            part_bits = None if bits is None else bits[part]
            self._optimizer.update(
                self._weight, self._state, rows, gradient, lr, step, random_bits=part_bits, has_l2=False
            )

    def step(self, rows: Tensor, gradient: Tensor, lr: float, step: int, mean_squares: Tensor | None) -> None:
        """Update ``rows`` ``[U]`` with ``gradient`` ``[U, D]``, decayed already; see ``RowOptimizer.update``."""
        bits = self._random_bits(rows, step)
        for part in blocks(rows.numel(), rows_per_block(self.width, self._device)):
            squares = None if mean_squares is None else mean_squares[part]
            part_bits = None if bits is None else bits[part]
            self._optimizer.update(
                self._weight, self._state, rows[part], gradient[part], lr, step, squares, random_bits=part_bits
            )

    def _random_bits(self, rows: Tensor, step: int) -> RandomBits | None:
        if self._salts is None:
            return None
        tables = torch.searchsorted(self._starts, rows, right=True)
        whole_rows = rows + self._shifts.index_select(0, tables)
        return RandomBits(row_hashes(self._salts.index_select(0, tables), whole_rows, step), self._columns)
