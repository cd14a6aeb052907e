"""Reading the shards of one table from ``plan.json``, abbreviated runs included."""

from collections.abc import Mapping
from typing import Any

from neo.errors import Finding, did_you_mean
from neo.plan.runs import CUT_COLUMNS, CUT_ROWS, cut_equally, grid_shards, nodes_within
from neo.plan.sharding_plan import Shard, ShardingType, reading_order
from neo.tables.spec import TableSpec

_SHARD_KEYS = ("rank", "ranks", "rows", "columns")
Range = tuple[int, int]


def whole_number(
    content: Mapping[str, Any],
    key: str,
    findings: list[Finding],
    *,
    lowest: int,
    highest: int | None = None,
    default: int | None = None,
) -> int | None:
    """Return a whole number within its limits; None after adding a finding."""
    value = content.get(key, default)
    limits = f"at least {lowest}" if highest is None else f"from {lowest} to {highest}"
    if value is None:
        findings.append(Finding(key, "is missing", f"write a whole number, {limits}"))
    elif not _is_int(value) or value < lowest or (highest is not None and value > highest):
        findings.append(Finding(key, f"{value!r} is not a whole number, {limits}"))
    else:
        return int(value)
    return None


class ShardReader:
    """Reads the shards of one table.

    Args:
        sharding_type: How the table is split.
        table: The table, if known: it supplies ranges that are left out.
        world_size: Ranks of the plan.
        local_world_size: Ranks of a full node.
        findings: Where mistakes go, with keys relative to the table.
    """

    def __init__(
        self,
        sharding_type: ShardingType,
        table: TableSpec | None,
        *,
        world_size: int,
        local_world_size: int,
        findings: list[Finding],
    ) -> None:
        self._sharding_type = sharding_type
        self._table = table
        self._world_size = world_size
        self._local_world_size = local_world_size
        self._findings = findings

    def read(self, entry: Mapping[str, Any]) -> tuple[Shard, ...] | None:
        """Return the shards in order of (rows, columns, rank); None or a part of them after adding findings."""
        written = entry.get("shards")
        if "ranks" in entry:
            written = self._whole_table(entry)
        if not isinstance(written, list):
            problem = "is missing" if written is None else f"must be a list, not {type(written).__name__}"
            if not self._findings:
                self._findings.append(Finding("shards", problem))
            return None
        shards = [shard for index, item in enumerate(written) for shard in self._read_item(item, f"shards[{index}]")]
        return tuple(sorted(shards, key=reading_order))

    def _whole_table(self, entry: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """Return the one shard entry that ``"ranks": "all"`` of a table stands for."""
        if entry["ranks"] != "all" or self._sharding_type is not ShardingType.DATA_PARALLEL:
            fix = 'only "all" of a data_parallel table can stand here'
            self._findings.append(Finding("ranks", f"{entry['ranks']!r} cannot stand in place of shards", fix))
            return None
        if "shards" in entry:
            self._findings.append(Finding("ranks", "stands beside shards", "keep one of the two"))
            return None
        return [{"ranks": "all"}]

    def _read_item(self, item: object, place: str) -> list[Shard]:
        if not isinstance(item, Mapping):
            self._findings.append(Finding(place, f"must be an object, not {type(item).__name__}"))
            return []
        before = len(self._findings)
        for key in item:
            if key not in _SHARD_KEYS:
                problem = f"'{key}' is not a key of a shard"
                self._findings.append(Finding(f"{place}.{key}", problem, did_you_mean(str(key), _SHARD_KEYS)))
        ranks = self._ranks(item, place)
        rows = self._range(item, "rows", place)
        columns = self._range(item, "columns", place)
        if len(self._findings) > before or ranks is None or rows is None or columns is None:
            return []
        if "rank" in item:
            return [Shard(ranks[0], *rows, *columns)]
        return self._run(ranks, rows, columns, place)

    def _ranks(self, item: Mapping[str, Any], place: str) -> range | None:
        if ("rank" in item) == ("ranks" in item):
            problem = "has both rank and ranks" if "rank" in item else "has neither rank nor ranks"
            self._findings.append(Finding(place, problem, "write one of them"))
            return None
        if "rank" in item:
            rank = item["rank"]
            if _is_int(rank) and 0 <= rank < self._world_size:
                return range(rank, rank + 1)
            self._findings.append(Finding(f"{place}.rank", f"{rank!r} is not a rank from 0 to {self._world_size - 1}"))
            return None
        ranks = item["ranks"]
        if ranks == "all":
            return range(self._world_size)
        if _is_range(ranks) and ranks[0] < ranks[1] <= self._world_size:
            return range(ranks[0], ranks[1])
        problem = f'{ranks!r} is neither "all" nor a range [begin, end] of ranks within [0, {self._world_size}]'
        self._findings.append(Finding(f"{place}.ranks", problem))
        return None

    def _range(self, item: Mapping[str, Any], side: str, place: str) -> Range | None:
        if side not in item and self._table is not None and item.get("ranks") == "all":
            return (0, self._table.num_embeddings if side == "rows" else self._table.embedding_dim)
        value: Any = item.get(side)
        if side in item and _is_range(value):
            return (value[0], value[1])
        problem = "is missing"
        if side in item:
            problem = f"{value!r} is not a range [begin, end] of whole numbers, begin <= end"
        self._findings.append(Finding(f"{place}.{side}", problem, f"write {side}: [0, 10] for the first ten"))
        return None

    def _run(self, ranks: range, rows: Range, columns: Range, place: str) -> list[Shard]:
        """Spread one line over its ranks."""
        if self._sharding_type is ShardingType.DATA_PARALLEL:
            return [Shard(rank, *rows, *columns) for rank in ranks]
        if self._sharding_type in CUT_ROWS:
            parts = self._cut(rows, len(ranks), "ranks", f"{place}.rows")
            return [Shard(rank, *part, *columns) for rank, part in zip(ranks, parts, strict=False)]
        if self._sharding_type in CUT_COLUMNS:
            parts = self._cut(columns, len(ranks), "ranks", f"{place}.columns")
            return [Shard(rank, *rows, *part) for rank, part in zip(ranks, parts, strict=False)]
        if self._sharding_type is ShardingType.GRID:
            return self._grid(ranks, rows, columns, place)
        problem = f"a {self._sharding_type} table cannot be spread over ranks"
        self._findings.append(Finding(f"{place}.ranks", problem, "write rank"))
        return []

    def _grid(self, ranks: range, rows: Range, columns: Range, place: str) -> list[Shard]:
        """Spread one line over nodes by columns, and over the ranks of each by rows."""
        nodes = nodes_within((ranks.start, ranks.stop), self._world_size, self._local_world_size)
        if nodes is None:
            problem = (
                f"[{ranks.start}, {ranks.stop}] is neither a part of one node nor whole nodes of "
                f"{self._local_world_size} ranks"
            )
            self._findings.append(Finding(f"{place}.ranks", problem, "write a line for each node"))
            return []
        parts = self._cut(columns, len(nodes), "nodes", f"{place}.columns")
        return grid_shards(nodes, rows, parts) if parts else []

    def _cut(self, bounds: Range, num_parts: int, of: str, place: str) -> list[Range]:
        """Cut a range into equal parts, one for each of the line's ranks or nodes."""
        parts = cut_equally(bounds, num_parts)
        if parts is None:
            problem = f"[{bounds[0]}, {bounds[1]}) cannot be cut into {num_parts} equal parts for the {of} of this line"
            self._findings.append(Finding(place, problem, "write two lines, each with parts of one size"))
            return []
        return parts


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_range(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_int, value)) and 0 <= value[0] <= value[1]
