"""A short name for a plan together with its tables: equal exactly if both are the same."""

import hashlib
import json
from collections.abc import Mapping

from neo.plan.sharding_plan import ShardingPlan
from neo.tables.spec import TableSpec

_HEX_DIGITS = 16


def plan_fingerprint(plan: ShardingPlan, tables: Mapping[str, TableSpec]) -> str:
    """Return 16 hexadecimal digits over the world, every placement and every table's shape, features and pooling.

    What row-wise optimizers do on split columns is part of it where the plan says so.

    The order of the tables does not matter. What only guides the planner (mean pooling, the hardware's numbers) is
    not part of it: if it changes the plan, the plan changes the fingerprint.
    """
    content: dict[str, object] = {
        "world": [plan.world_size, plan.local_world_size],
        "placements": {
            key: [
                placed.sharding_type,
                placed.kernel,
                placed.tier,
                placed.cache_bytes,
                [[s.rank, s.row_begin, s.row_end, s.column_begin, s.column_end] for s in placed.shards],
            ]
            for key, placed in plan.tables.items()
        },
        "tables": {
            key: [t.name, t.num_embeddings, t.embedding_dim, t.feature_names, t.pooling, t.weighted]
            for key, t in tables.items()
        },
    }
    if plan.column_wise_semantics is not None:
        content["column_wise_semantics"] = plan.column_wise_semantics
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:_HEX_DIGITS]
