"""The plan on disk: ``plan.json``, readable and editable by hand.

The format (ranges are half-open, ``[begin, end]``)::

    {"version": 1, "world_size": 2, "local_world_size": 2, "fingerprint": "…",
     "tables": {
       "user_id": {"sharding_type": "row_wise", "kernel": "fbgemm", "tier": "hbm", "cache_bytes": 0,
                   "shards": [{"rank": 0, "rows": [0, 50], "columns": [0, 64]},
                              {"rank": 1, "rows": [50, 100], "columns": [0, 64]}]}}}

``fingerprint`` is checked only if present: delete the line after an edit. ``kernel``, ``tier`` and ``cache_bytes`` may
be left out (``auto``, ``hbm``, 0). A key may be shortened to the bare name of the table where that is unique. One line
may stand for a run of shards: ``"ranks": [a, b]`` in place of ``"rank"`` cuts its rows (``row_wise``) or columns
(``column_wise``) into b - a equal parts, for the ranks a to b - 1 in order; of a ``data_parallel`` table each rank gets
the whole range. ``"ranks": "all"`` is every rank; a ``data_parallel`` table may have it in place of ``shards``.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from neo.plan.plan_reader import plan_from_dict, read_plan
from neo.plan.sharding_plan import Shard, ShardingPlan, ShardingType, TablePlan

__all__ = ["VERSION", "plan_from_dict", "plan_text", "plan_to_dict", "read_plan", "write_plan"]

VERSION = 1
_LONGEST_PLAIN_RUN = 8  # Longer runs are abbreviated; the plans of one node stay plain.


def plan_to_dict(plan: ShardingPlan, fingerprint: str | None = None) -> dict[str, Any]:
    """Return the plan as what ``plan.json`` holds."""
    head: dict[str, Any] = {
        "version": VERSION,
        "world_size": plan.world_size,
        "local_world_size": plan.local_world_size,
    }
    if fingerprint is not None:
        head["fingerprint"] = fingerprint
    tables = {key: _table_to_dict(table_plan, plan.world_size) for key, table_plan in plan.tables.items()}
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


def _table_to_dict(table_plan: TablePlan, world_size: int) -> dict[str, Any]:
    return {
        "sharding_type": table_plan.sharding_type.value,
        "kernel": table_plan.kernel,
        "tier": table_plan.tier.value,
        "cache_bytes": table_plan.cache_bytes,
        "shards": [
            entry
            for run in _runs(table_plan.shards, table_plan.sharding_type)
            for entry in _run_to_dicts(run, world_size)
        ],
    }


def _runs(shards: Sequence[Shard], sharding_type: ShardingType) -> list[list[Shard]]:
    """Group neighbouring shards that one line can stand for."""
    runs: list[list[Shard]] = []
    for shard in shards:
        if runs and _continues(runs[-1][-1], shard, sharding_type):
            runs[-1].append(shard)
        else:
            runs.append([shard])
    return runs


def _continues(last: Shard, shard: Shard, sharding_type: ShardingType) -> bool:
    if shard.rank != last.rank + 1 or (shard.num_rows, shard.num_columns) != (last.num_rows, last.num_columns):
        return False
    if sharding_type is ShardingType.ROW_WISE:
        return shard.row_begin == last.row_end and shard.column_begin == last.column_begin
    if sharding_type is ShardingType.COLUMN_WISE:
        return shard.column_begin == last.column_end and shard.row_begin == last.row_begin
    return (shard.row_begin, shard.column_begin) == (last.row_begin, last.column_begin)


def _run_to_dicts(run: Sequence[Shard], world_size: int) -> list[dict[str, Any]]:
    if len(run) <= _LONGEST_PLAIN_RUN:
        return [{"rank": shard.rank} | _ranges(shard, shard) for shard in run]
    ranks: Any = "all" if len(run) == world_size else [run[0].rank, run[-1].rank + 1]
    return [{"ranks": ranks} | _ranges(run[0], run[-1])]


def _ranges(first: Shard, last: Shard) -> dict[str, list[int]]:
    return {"rows": [first.row_begin, last.row_end], "columns": [first.column_begin, last.column_end]}
