"""The configuration group ``sharding``: how the tables are to be laid over the ranks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from neo.as_typed import as_typed, quoted
from neo.errors import Finding, unknown_name
from neo.limits import without_effect
from neo.plan.sharding_plan import SPLIT_BY_COLUMNS, ColumnWiseSemantics, ShardingType
from neo.registry import Registry

PARTITIONERS: Registry[Callable[..., Any]] = Registry("partitioner")
PARTITIONERS.register("greedy", "neo.planner.partitioners.greedy:partition")

AUTO = "auto"
_PARTITIONED = {"auto", "table_wise", "column_wise"}
_SPLIT_BY_COLUMNS = {"auto", *SPLIT_BY_COLUMNS}
_TABLE_KEYS = ("type",)
_PLANNED_TABLE_KEYS = ("tier", "cache", "cache_bytes", "kernel")
_PLANNED_PARTITIONERS = ("ldm",)


class ShardingMode(StrEnum):
    """``sharding.type``: the planner decides, a file does, or every table gets the same type."""

    AUTO = "auto"
    FILE = "file"
    TABLE_WISE = "table_wise"
    ROW_WISE = "row_wise"
    COLUMN_WISE = "column_wise"
    DATA_PARALLEL = "data_parallel"
    TABLE_ROW_WISE = "table_row_wise"
    TABLE_COLUMN_WISE = "table_column_wise"
    GRID = "grid"

    @property
    def forced(self) -> ShardingType | None:
        """The sharding type that it forces on every table; None for ``auto`` and ``file``."""
        return None if self in (ShardingMode.AUTO, ShardingMode.FILE) else ShardingType(self.value)


@dataclass(frozen=True)
class TableSharding:
    """The override for one table.

    Attributes:
        name: The table's name, or its key in the plan.
        sharding_type: What is forced on it; None leaves it to the planner.
    """

    name: str
    sharding_type: ShardingType | None


@dataclass(frozen=True)
class ShardingSpec:
    """``sharding.*``, resolved.

    Attributes:
        type: The planner decides (``auto``), a file does, or one type is forced on every table.
        path: The plan to read with ``file``.
        tables: Overrides for single tables, by name.
        column_wise_semantics: What a row-wise optimizer does on tables that are split by columns: the unsharded update,
            or the cheaper and different one in which every column shard keeps its own state. None: what the plan of
            ``file`` says, else ``EXACT``.
        partitioner: ``auto`` or a name in ``PARTITIONERS``.
    """

    type: ShardingMode = ShardingMode.AUTO
    path: str | None = None
    tables: tuple[TableSharding, ...] = ()
    column_wise_semantics: ColumnWiseSemantics | None = None
    partitioner: str = AUTO

    @property
    def semantics(self) -> ColumnWiseSemantics:
        """What is asked for, the default included; of a plan that is read, the plan's own word comes first."""
        return ColumnWiseSemantics.EXACT if self.column_wise_semantics is None else self.column_wise_semantics


@dataclass
class ShardingConfig:
    """``sharding.*``; see ``ShardingSpec``.

    ``tables`` maps a table's name to ``{type: …}``, one of the sharding types or ``auto``. ``column_wise_semantics``
    is ``exact`` or ``per_shard``; null is ``exact``, or with ``type=file`` what the plan says.
    """

    type: str = "auto"
    path: str | None = None
    tables: dict[str, Any] = field(default_factory=dict)
    column_wise_semantics: str | None = None
    partitioner: str = AUTO

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``sharding``.

        Names of tables are checked by the planner, which knows the tables.
        """
        findings = []
        if self.type not in list(ShardingMode):
            findings.append(unknown_name("type", self.type, "sharding type", list(ShardingMode)))
        findings += self._check_path()
        for name, entry in self.tables.items():
            findings += [finding.under(f"tables.{name}") for finding in _check_table(str(name), entry)]
        semantics = self.column_wise_semantics
        if semantics is not None and semantics not in list(ColumnWiseSemantics):
            choices = list(ColumnWiseSemantics)
            findings.append(unknown_name("column_wise_semantics", semantics, "column-wise semantics", choices))
        if self.partitioner != AUTO and self.partitioner not in PARTITIONERS:
            names = (AUTO, *PARTITIONERS.names())
            findings.append(
                unknown_name("partitioner", self.partitioner, "partitioner", names, planned=_PLANNED_PARTITIONERS)
            )
        return [*findings, *self._without_effect()]

    def _without_effect(self) -> list[Finding]:
        """Find wishes that none of the chosen sharding types heeds."""
        if self.type not in list(ShardingMode) or self.type == ShardingMode.FILE:
            return []
        types = {self.type, *(str(entry["type"]) for entry in self.tables.values() if _has_type(entry))}
        chosen = " and ".join(sorted(types))
        findings = []
        if not types & _PARTITIONED:
            findings += without_effect(self, {"partitioner": ("table_wise", "column_wise")}, chosen)
        if self.column_wise_semantics == ColumnWiseSemantics.PER_SHARD and not types & _SPLIT_BY_COLUMNS:
            problem = f"'per_shard' has no effect on '{chosen}': no table is split by columns"
            findings.append(Finding("column_wise_semantics", problem, "leave it out"))
        return findings

    def _check_path(self) -> list[Finding]:
        findings = []
        if self.type == ShardingMode.FILE and not self.path:
            findings.append(Finding("path", "sharding=file needs the plan to read", "set sharding.path=plan.json"))
        if self.type != ShardingMode.FILE and self.path is not None:
            findings.append(Finding("path", f"'{self.path}' has no effect on '{self.type}'", "use sharding=file"))
        if self.type == ShardingMode.FILE and self.tables:
            named = ", ".join(sorted(str(name) for name in self.tables))
            fix = "edit the plan, or choose another sharding"
            findings.append(Finding("tables", f"overrides ({named}) have no effect on 'file'", fix))
        if self.type == ShardingMode.FILE and self.partitioner != AUTO:
            problem = f"'{self.partitioner}' has no effect on 'file'"
            findings.append(Finding("partitioner", problem, "use partitioner=auto, or choose another sharding"))
        return findings

    def to_spec(self) -> ShardingSpec:
        """Return the frozen form of a valid configuration."""
        semantics = self.column_wise_semantics
        return ShardingSpec(
            type=ShardingMode(self.type),
            path=self.path,
            tables=tuple(
                TableSharding(str(name), None if entry["type"] == AUTO else ShardingType(entry["type"]))
                for name, entry in sorted(self.tables.items(), key=lambda item: str(item[0]))
            ),
            column_wise_semantics=None if semantics is None else ColumnWiseSemantics(semantics),
            partitioner=self.partitioner,
        )


def _has_type(entry: object) -> bool:
    return isinstance(entry, Mapping) and "type" in entry


def _check_table(name: str, entry: object) -> list[Finding]:
    """Return every mistake of one override, keys relative to it."""
    if not isinstance(entry, Mapping):
        return [Finding("", f"{quoted(entry)} is not a mapping", f"write ++sharding.tables.{name}.type=row_wise")]
    findings = [
        unknown_name(str(key), str(key), "key of a table's sharding", _TABLE_KEYS, planned=_PLANNED_TABLE_KEYS)
        for key in entry
        if key not in _TABLE_KEYS
    ]
    choices = (AUTO, *ShardingType)
    if "type" not in entry:
        findings.append(Finding("type", "is missing", f"write ++sharding.tables.{name}.type=row_wise"))
    elif entry["type"] not in choices:
        findings.append(unknown_name("type", as_typed(entry["type"]), "sharding type", choices))
    return findings
