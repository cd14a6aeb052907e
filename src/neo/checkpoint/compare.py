"""What a model's tables are and whether a checkpoint's are the same, torch-free."""

from collections.abc import Mapping, Sequence

from neo.checkpoint.manifest import TableEntry
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingPlan
from neo.planner.semantics import per_shard_tables
from neo.tables.spec import TableSpec

_WEIGHTS = ("num_embeddings", "embedding_dim")
_MEANING = ("pooling", "weighted", "feature_names")
_TRAINING = ("weights_dtype", "optimizer")


def table_entries(
    tables: Mapping[str, TableSpec],
    optimizers: Mapping[str, SparseOptimizerSpec],
    *,
    plan: ShardingPlan | None = None,
    semantics: ColumnWiseSemantics = ColumnWiseSemantics.EXACT,
) -> tuple[TableEntry, ...]:
    """Return what a checkpoint says of tables.

    Args:
        tables: By plan key.
        optimizers: The optimizer of each.
        plan: Where they are; None leaves out what column shards keep of their own.
        semantics: What a row-wise optimizer does on tables split by columns.
    """
    own = () if plan is None else per_shard_tables(plan, optimizers, semantics)
    return tuple(
        TableEntry(
            key=key,
            num_embeddings=table.num_embeddings,
            embedding_dim=table.embedding_dim,
            weights_dtype=optimizers[key].weights_dtype.value,
            optimizer=optimizers[key].name,
            states=dict(optimizers[key].states),
            pooling=table.pooling.value,
            weighted=table.weighted,
            feature_names=table.feature_names,
            column_ranges=tuple(plan.tables[key].column_ranges)
            if plan is not None and key in own
            else ((0, table.embedding_dim),),
        )
        for key, table in tables.items()
    )


def differences(saved: Sequence[TableEntry], wanted: Sequence[TableEntry], *, weights_only: bool = False) -> list[str]:
    """Return in what a checkpoint's tables differ from a model's, one line each; none if it can be loaded.

    Args:
        saved: The checkpoint's.
        wanted: The model's.
        weights_only: Whether optimizer and type of the weights may differ.
    """
    before, now = {entry.key: entry for entry in saved}, {entry.key: entry for entry in wanted}
    lines = [f"table '{key}' is in the checkpoint only" for key in before if key not in now]
    lines += [f"table '{key}' is in the model only" for key in now if key not in before]
    compared = (*_WEIGHTS, *_MEANING, *(() if weights_only else _TRAINING))
    for key in now:
        if key in before:
            for name in compared:
                old, new = getattr(before[key], name), getattr(now[key], name)
                if old != new:
                    lines.append(
                        f"table '{key}': {name} is {_said(old)} in the checkpoint and {_said(new)} in the model"
                    )
    return lines


def _said(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
