"""The plan on disk: ``plan.json``, readable and editable by hand.

The format (ranges are half-open, ``[begin, end]``)::

    {"version": 1, "world_size": 2, "local_world_size": 2, "fingerprint": "…",
     "tables": {
       "user_id": {"sharding_type": "row_wise", "kernel": "fbgemm", "tier": "hbm", "cache_bytes": 0,
                   "shards": [{"rank": 0, "rows": [0, 50], "columns": [0, 64]},
                              {"rank": 1, "rows": [50, 100], "columns": [0, 64]}]}}}

``fingerprint`` is checked only if present: delete the line after an edit. ``column_wise_semantics`` (``exact`` or
``per_shard``) stands beside it where a row-wise optimizer meets a table that is split by columns, and decides what the
run does; left out, ``sharding.column_wise_semantics`` decides. ``kernel``, ``tier`` and ``cache_bytes`` may
be left out (``auto``, ``hbm``, 0). A key may be shortened to the bare name of the table where that is unique. One line
may stand for a run of shards: ``"ranks": [a, b]`` in place of ``"rank"`` cuts its rows (``row_wise`` and
``table_row_wise``) or columns (``column_wise`` and ``table_column_wise``) into b - a equal parts, for the ranks a to
b - 1 in order. Of a ``grid`` table, whose ranks must then be a part of one node or whole nodes, it cuts the columns
into equal parts, one per node, and the rows of each as evenly as can be over the ranks of its node. Of a
``data_parallel`` table each rank gets the whole range. ``"ranks": "all"`` is every rank; a ``data_parallel`` table may
have it in place of ``shards``.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neo.plan.plan_reader import plan_from_dict, read_plan
from neo.plan.runs import Line, lines_of
from neo.plan.sharding_plan import ShardingPlan, TablePlan

__all__ = ["VERSION", "plan_from_dict", "plan_text", "plan_to_dict", "read_plan", "write_plan"]

VERSION = 1


def plan_to_dict(plan: ShardingPlan, fingerprint: str | None = None) -> dict[str, Any]:
    """Return the plan as what ``plan.json`` holds."""
    head: dict[str, Any] = {
        "version": VERSION,
        "world_size": plan.world_size,
        "local_world_size": plan.local_world_size,
    }
    if plan.column_wise_semantics is not None:
        head["column_wise_semantics"] = plan.column_wise_semantics.value
    if fingerprint is not None:
        head["fingerprint"] = fingerprint
    tables = {key: _table_to_dict(table_plan, plan) for key, table_plan in plan.tables.items()}
    return head | {"tables": tables}


def plan_text(plan: ShardingPlan, fingerprint: str | None = None) -> str:
    """Return the text of ``plan.json``: one line per shard or run of shards."""
    content = plan_to_dict(plan, fingerprint)
    tables = [f"    {json.dumps(key)}: {_table_text(table)}" for key, table in content.pop("tables").items()]
    head = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in content.items()]
    body = '  "tables": {}' if not tables else '  "tables": {\n' + ",\n".join(tables) + "\n  }"
    return "\n".join(["{", *head, body, "}", ""])


def write_plan(path: Path, plan: ShardingPlan, fingerprint: str | None = None) -> None:
    """Write ``plan.json``; an existing file is replaced in one step."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    draft.write_text(plan_text(plan, fingerprint), encoding="utf-8")
    draft.replace(path)


def _table_text(table: Mapping[str, Any]) -> str:
    head = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in table.items() if key != "shards")
    shards = ",\n".join(f"        {json.dumps(shard)}" for shard in table["shards"])
    return f'{{\n      {head},\n      "shards": [\n{shards}\n      ]\n    }}'


def _table_to_dict(table_plan: TablePlan, plan: ShardingPlan) -> dict[str, Any]:
    lines = lines_of(table_plan.shards, table_plan.sharding_type, plan.world_size, plan.local_world_size)
    return {
        "sharding_type": table_plan.sharding_type.value,
        "kernel": table_plan.kernel,
        "tier": table_plan.tier.value,
        "cache_bytes": table_plan.cache_bytes,
        "shards": [_line_to_dict(line, plan.world_size) for line in lines],
    }


def _line_to_dict(line: Line, world_size: int) -> dict[str, Any]:
    ranges = {"rows": list(line.rows), "columns": list(line.columns)}
    if not line.is_run:
        return {"rank": line.ranks[0]} | ranges
    return {"ranks": "all" if line.ranks == (0, world_size) else list(line.ranks)} | ranges
