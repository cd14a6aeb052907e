"""Where NaN and infinite values sit, asked only once a loss is not finite: nothing here runs in a sound step.

Shapes: B samples of this rank, D columns of one output.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neo.plan.sharding_plan import Shard
from neo.tables.spec import TableSpec

_BLOCK_ELEMENTS = 1 << 22

LocalShards = Callable[[int], Iterable[tuple[Shard, Tensor, Mapping[str, Tensor]]]]


@dataclass(frozen=True)
class NonFinite:
    """Where the first bad value is.

    Attributes:
        stage: The stage of the step that it shows in first.
        text: Table, feature, row.
    """

    stage: str
    text: str

    def __str__(self) -> str:
        return self.text


def first_non_finite(
    tables: Sequence[TableSpec], output_names: Sequence[str], outputs: Mapping[str, Tensor], shards: LocalShards
) -> NonFinite | None:
    """Return where the first NaN or infinite value is: in an output, else in this rank's weights; None if nowhere.

    Args:
        tables: The tables in declared order.
        output_names: Name of each output, table by table and feature by feature.
        outputs: ``[B, D]`` rows of the last forward by output name; absent ones are passed over.
        shards: This rank's shards of a table, by its index, with their weights ``[rows, columns]``.
    """
    names = iter(output_names)
    for index, table in enumerate(tables):
        for feature in table.feature_names:
            pooled = outputs.get(next(names))
            if pooled is not None and (found := _in_rows(pooled)) is not None:
                row = _in_weights(table, shards(index))
                text = f"table '{table.name}', feature '{feature}': {found}"
                if row is not None:
                    return NonFinite("lookup", f"{text}; {row}")
                return NonFinite("lookup or output_dist", text)  # of a row elsewhere, of a sum, or of a codec
    rows = (_in_weights(table, shards(index)) for index, table in enumerate(tables))
    return next((NonFinite("sparse update of an earlier step", row) for row in rows if row is not None), None)


def _in_rows(pooled: Tensor) -> str | None:
    bad = ~pooled.isfinite().all(dim=1)
    if not bool(bad.any()):
        return None
    rows = bad.nonzero().flatten()
    first = int(rows[0])
    return f"{len(rows)} of {len(pooled)} output rows hold {kind_of(pooled[first])} (first: row {first})"


def _in_weights(table: TableSpec, shards: Iterable[tuple[Shard, Tensor, Mapping[str, Tensor]]]) -> str | None:
    for shard, weight, _ in shards:
        step = max(1, _BLOCK_ELEMENTS // max(1, weight.shape[1]))
        for begin, block in zip(range(0, len(weight), step), weight.split(step), strict=True):
            bad = ~block.isfinite().all(dim=1)
            if bool(bad.any()):
                at = int(bad.nonzero()[0])
                row = shard.row_begin + begin + at
                return f"row {row} of the weights of table '{table.name}' holds {kind_of(block[at])}"
    return None


def kind_of(values: Tensor) -> str:
    """Return ``NaN`` if there is one among ``values``, else ``inf``."""
    return "NaN" if bool(torch.isnan(values).any()) else "inf"
