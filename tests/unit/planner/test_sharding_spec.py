from typing import Any

import pytest

from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingType
from neo.planner.spec import ShardingConfig, ShardingMode, ShardingSpec, TableSharding


def findings(**values: Any) -> list[str]:
    return [str(finding) for finding in ShardingConfig(**values).validate()]


def test_a_sound_configuration() -> None:
    config = ShardingConfig(
        type="table_wise", tables={"b": {"type": "auto"}, "a": {"type": "row_wise"}}, column_wise_semantics="per_shard"
    )
    assert config.validate() == []
    assert config.to_spec() == ShardingSpec(
        type=ShardingMode.TABLE_WISE,
        tables=(TableSharding("a", ShardingType.ROW_WISE), TableSharding("b", None)),
        column_wise_semantics=ColumnWiseSemantics.PER_SHARD,
    )
    assert ShardingConfig().to_spec() == ShardingSpec()
    assert ShardingConfig(type="file", path="plan.json").validate() == []


def test_forced_types() -> None:
    assert ShardingMode.AUTO.forced is None
    assert ShardingMode.FILE.forced is None
    assert ShardingMode.ROW_WISE.forced is ShardingType.ROW_WISE
    assert {mode.value for mode in ShardingMode} == {kind.value for kind in ShardingType} | {"auto", "file"}


def test_all_mistakes_are_found_at_once() -> None:
    assert findings(
        type="tabel_wise",
        tables={
            "user_id": {"type": "rowwise", "tpye": "row_wise"},
            "item": "row_wise",
            "shop": {},
            "city": {"type": 3},
        },
        column_wise_semantics="exactly",
        partitioner="greedi",
    ) == [
        "type: 'tabel_wise' is not a sharding type; did you mean 'table_wise'? Choices: auto, column_wise, "
        "data_parallel, file, grid, row_wise, table_column_wise, table_row_wise, table_wise",
        "tables.user_id.tpye: 'tpye' is not a key of a table's sharding; did you mean 'type'? Choices: type",
        "tables.user_id.type: 'rowwise' is not a sharding type; did you mean 'row_wise'? Choices: auto, column_wise, "
        "data_parallel, grid, row_wise, table_column_wise, table_row_wise, table_wise",
        "tables.item: 'row_wise' is not a mapping; write ++sharding.tables.item.type=row_wise",
        "tables.shop.type: is missing; write ++sharding.tables.shop.type=row_wise",
        "tables.city.type: '3' is not a sharding type; Choices: auto, column_wise, data_parallel, grid, row_wise, "
        "table_column_wise, table_row_wise, table_wise",
        "column_wise_semantics: 'exactly' is not a column-wise semantics; did you mean 'exact'? Choices: exact, "
        "per_shard",
        "partitioner: 'greedi' is not a partitioner; did you mean 'greedy'? Choices: auto, greedy",
    ]


def test_exact_is_the_default() -> None:
    assert ShardingConfig().to_spec().semantics is ColumnWiseSemantics.EXACT
    assert ShardingConfig(column_wise_semantics="exact").to_spec().column_wise_semantics is ColumnWiseSemantics.EXACT
    assert ShardingSpec().column_wise_semantics is None
    assert findings(column_wise_semantics=None) == findings(type="file", path="plan.json") == []


@pytest.mark.parametrize("kind", ["table_row_wise", "table_column_wise", "grid"])
def test_nested_types_are_forced_like_the_others(kind: str) -> None:
    config = ShardingConfig(type=kind, tables={"a": {"type": kind}})
    assert config.validate() == []
    assert config.to_spec().type.forced is ShardingType(kind)
    assert config.to_spec().tables == (TableSharding("a", ShardingType(kind)),)


def test_per_shard_needs_a_type_that_splits_columns() -> None:
    for kind in ("auto", "column_wise", "table_column_wise", "grid"):
        assert findings(type=kind, column_wise_semantics="per_shard") == []
    for kind in ("table_wise", "row_wise", "table_row_wise", "data_parallel"):
        assert findings(type=kind, column_wise_semantics="per_shard") == [
            f"column_wise_semantics: 'per_shard' has no effect on '{kind}': no table is split by columns; leave it out"
        ]


def test_file_needs_a_path_and_a_path_needs_file() -> None:
    assert findings(type="file") == ["path: sharding=file needs the plan to read; set sharding.path=plan.json"]
    assert findings(path="plan.json") == ["path: 'plan.json' has no effect on 'auto'; use sharding=file"]


def test_what_has_no_effect_on_a_file_is_refused() -> None:
    assert findings(type="file", path="p", tables={"a": {"type": "row_wise"}}, partitioner="greedy") == [
        "tables: overrides (a) have no effect on 'file'; edit the plan, or choose another sharding",
        "partitioner: 'greedy' has no effect on 'file'; use partitioner=auto, or choose another sharding",
    ]
