import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neo.errors import ConfigError
from neo.plan.check import check_plan
from neo.plan.fingerprint import plan_fingerprint
from neo.plan.serialize import plan_from_dict, plan_text, plan_to_dict, read_plan, write_plan
from neo.plan.sharding_plan import ColumnWiseSemantics, Shard, ShardingPlan, ShardingType, TablePlan, Tier
from unit.plan.builders import machine, plan_for, table, tables

T = tables(table("a", rows=10, dim=8), table("b", rows=6, dim=8))
GOOD: dict[str, Any] = {
    "version": 1,
    "world_size": 2,
    "local_world_size": 2,
    "tables": {
        "model.embeddings.a": {
            "sharding_type": "row_wise",
            "kernel": "fbgemm",
            "tier": "ddr",
            "cache_bytes": 64,
            "shards": [
                {"rank": 0, "rows": [0, 5], "columns": [0, 8]},
                {"rank": 1, "rows": [5, 10], "columns": [0, 8]},
            ],
        },
        "b": {"sharding_type": "data_parallel", "ranks": "all"},
    },
}


def errors(content: object, known: bool = True) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        plan_from_dict(content, T if known else None)
    return [str(finding) for finding in caught.value.findings]


def changed(*path: str | int, to: Any) -> dict[str, Any]:
    content = copy.deepcopy(GOOD)
    at: Any = content
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return content


def test_column_wise_semantics_may_stand_in_a_plan() -> None:
    assert "column_wise_semantics" not in plan_to_dict(plan_from_dict(GOOD, T))
    for semantics in ColumnWiseSemantics:
        plan = plan_from_dict(changed("column_wise_semantics", to=semantics.value), T)
        assert plan.column_wise_semantics is semantics
        assert plan_from_dict(json.loads(plan_text(plan)), T) == plan
    assert errors(changed("column_wise_semantics", to="per-shard")) == [
        "column_wise_semantics: 'per-shard' is not a column-wise semantics; did you mean 'per_shard'? "
        "Choices: exact, per_shard"
    ]


def test_reading_completes_names_ranges_and_defaults() -> None:
    plan = plan_from_dict(GOOD, T)
    assert plan.tables["model.embeddings.a"].tier is Tier.DDR
    assert plan.tables["model.embeddings.a"].cache_bytes == 64
    replicated = plan.tables["model.embeddings.b"]
    assert replicated == TablePlan(ShardingType.DATA_PARALLEL, (Shard(0, 0, 6, 0, 8), Shard(1, 0, 6, 0, 8)))
    assert (replicated.kernel, replicated.tier, replicated.cache_bytes) == ("auto", Tier.HBM, 0)
    assert check_plan(plan, T, 2, 2) == []


def test_a_small_plan_is_written_shard_by_shard(tmp_path: Path) -> None:
    plan = plan_for(T, "row_wise").plan
    write_plan(tmp_path / "plan.json", plan, "0123456789abcdef")
    assert (tmp_path / "plan.json").read_text() == (
        "{\n"
        '  "version": 1,\n'
        '  "world_size": 2,\n'
        '  "local_world_size": 2,\n'
        '  "fingerprint": "0123456789abcdef",\n'
        '  "tables": {\n'
        '    "model.embeddings.a": {\n'
        '      "sharding_type": "row_wise", "kernel": "reference", "tier": "hbm", "cache_bytes": 0,\n'
        '      "shards": [\n'
        '        {"rank": 0, "rows": [0, 5], "columns": [0, 8]},\n'
        '        {"rank": 1, "rows": [5, 10], "columns": [0, 8]}\n'
        "      ]\n"
        "    },\n"
        '    "model.embeddings.b": {\n'
        '      "sharding_type": "row_wise", "kernel": "reference", "tier": "hbm", "cache_bytes": 0,\n'
        '      "shards": [\n'
        '        {"rank": 0, "rows": [0, 3], "columns": [0, 8]},\n'
        '        {"rank": 1, "rows": [3, 6], "columns": [0, 8]}\n'
        "      ]\n"
        "    }\n"
        "  }\n"
        "}\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_long_runs_are_abbreviated_and_read_back() -> None:
    specs = tables(table("rows", rows=45, dim=4), table("columns", dim=64), table("small"), prefix="")
    plan = plan_for(
        specs,
        world_size=32,
        overrides={"rows": "row_wise", "columns": "column_wise", "small": "data_parallel"},
    ).plan
    written = plan_to_dict(plan)["tables"]
    assert written["rows"]["shards"] == [
        {"ranks": [0, 13], "rows": [0, 26], "columns": [0, 4]},
        {"ranks": [13, 32], "rows": [26, 45], "columns": [0, 4]},
    ]
    assert written["columns"]["shards"] == [{"ranks": "all", "rows": [0, 100], "columns": [0, 64]}]
    assert written["small"]["shards"] == [{"ranks": "all", "rows": [0, 100], "columns": [0, 8]}]
    assert plan_from_dict(json.loads(plan_text(plan))) == plan


def test_five_thousand_tables_on_4096_ranks_stay_readable() -> None:
    shards = tuple(Shard(rank, 10 * rank, 10 * rank + 10, 0, 8) for rank in range(4096))
    row_wise = TablePlan(ShardingType.ROW_WISE, shards)
    plan = ShardingPlan(4096, 8, {f"t{index}": row_wise for index in range(20)})
    assert len(plan_text(plan).splitlines()) == 6 + 6 * 20 + 1


def test_a_run_that_cannot_be_cut_evenly() -> None:
    run = [{"ranks": "all", "rows": [0, 9], "columns": [0, 8]}]
    assert errors(changed("tables", "model.embeddings.a", "shards", to=run)) == [
        "tables.model.embeddings.a.shards[0].rows: [0, 9) cannot be cut into 2 equal parts for the ranks of this line; "
        "write two lines, each with parts of one size"
    ]


def test_a_whole_table_cannot_be_spread() -> None:
    entry = {"sharding_type": "table_wise", "shards": [{"ranks": "all", "rows": [0, 6], "columns": [0, 8]}]}
    assert errors(changed("tables", "b", to=entry)) == [
        "tables.b.shards[0].ranks: a table_wise table cannot be spread over ranks; write rank"
    ]


A = ("tables", "model.embeddings.a")
FIRST = (*A, "shards", 0)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([], "plan: must be a JSON object, not list"),
        (changed("version", to=2), "version: 2 is not a version that this neo reads; it reads 1"),
        (changed("version", to=True), "version: True is not a version that this neo reads; it reads 1"),
        (changed("world_size", to="2"), "world_size: '2' is not a whole number, from 1 to 1048576"),
        (changed("world_size", to=0), "world_size: 0 is not a whole number, from 1 to 1048576"),
        (changed("world_size", to=None), "world_size: is missing; write a whole number, from 1 to 1048576"),
        (changed("tables", to=[]), "tables: must be an object by table, not list"),
        (changed("tables", to=None), "tables: is missing"),
        (
            changed("word_size", to=1),
            "word_size: 'word_size' is not a key of a plan; did you mean 'world_size'? Choices: column_wise_semantics, "
            "fingerprint, local_world_size, tables, version, world_size",
        ),
        (changed("tables", "b", to=3), "tables.b: must be an object, not int"),
        (
            changed(*A, "sharding_type", to="rowwise"),
            "tables.model.embeddings.a.sharding_type: 'rowwise' is not a sharding type; did you mean 'row_wise'? "
            "Choices: column_wise, data_parallel, grid, row_wise, table_column_wise, table_row_wise, table_wise",
        ),
        (changed(*A, "sharding_type", to=None), "tables.model.embeddings.a.sharding_type: is missing"),
        (
            changed(*A, "tier", to="dram"),
            "tables.model.embeddings.a.tier: 'dram' is not a memory tier; did you mean 'ddr'? Choices: ddr, hbm, ssd",
        ),
        (
            changed(*A, "kernel", to=1),
            "tables.model.embeddings.a.kernel: 1 is not a name; write auto or an ops backend",
        ),
        (
            changed(*A, "cache_bytes", to=-1),
            "tables.model.embeddings.a.cache_bytes: -1 is not a whole number, at least 0",
        ),
        (
            changed(*A, "cache", to=1),
            "tables.model.embeddings.a.cache: 'cache' is not a key of a table in a plan; did you mean 'cache_bytes'? "
            "Choices: cache_bytes, kernel, ranks, sharding_type, shards, tier",
        ),
        (changed(*A, "shards", to=None), "tables.model.embeddings.a.shards: is missing"),
        (changed(*A, "shards", to="all"), "tables.model.embeddings.a.shards: must be a list, not str"),
        (changed(*FIRST, to=1), "tables.model.embeddings.a.shards[0]: must be an object, not int"),
        (
            changed(*FIRST, "rank", to=2),
            "tables.model.embeddings.a.shards[0].rank: 2 is not a rank from 0 to 1",
        ),
        (
            changed(*FIRST, "ranks", to=[0, 1]),
            "tables.model.embeddings.a.shards[0]: has both rank and ranks; write one of them",
        ),
        (
            changed(*FIRST, to={"rows": [0, 5], "columns": [0, 8]}),
            "tables.model.embeddings.a.shards[0]: has neither rank nor ranks; write one of them",
        ),
        (
            changed(*FIRST, to={"ranks": [0, 3], "rows": [0, 5], "columns": [0, 8]}),
            'tables.model.embeddings.a.shards[0].ranks: [0, 3] is neither "all" nor a range [begin, end] of ranks '
            "within [0, 2]",
        ),
        (
            changed(*FIRST, "rows", to=[5, 0]),
            "tables.model.embeddings.a.shards[0].rows: [5, 0] is not a range [begin, end] of whole numbers, begin <= "
            "end; write rows: [0, 10] for the first ten",
        ),
        (
            changed(*FIRST, to={"rank": 0, "columns": [0, 8]}),
            "tables.model.embeddings.a.shards[0].rows: is missing; write rows: [0, 10] for the first ten",
        ),
        (
            changed(*FIRST, "row", to=1),
            "tables.model.embeddings.a.shards[0].row: 'row' is not a key of a shard; did you mean 'rows'? Choices: "
            "columns, rank, ranks, rows",
        ),
        (
            changed("tables", "b", to={"sharding_type": "data_parallel", "ranks": "all", "shards": []}),
            "tables.b.ranks: stands beside shards; keep one of the two",
        ),
        (
            changed("tables", "b", to={"sharding_type": "row_wise", "ranks": "all"}),
            "tables.b.ranks: 'all' cannot stand in place of shards; "
            'only "all" of a data_parallel table can stand here',
        ),
        (
            changed("tables", "a", to=GOOD["tables"]["b"]),
            "tables.a: the table 'model.embeddings.a' is in the plan more than once",
        ),
    ],
)
def test_each_malformed_place_is_named(content: object, expected: str) -> None:
    assert errors(content) == [expected]


def test_all_mistakes_are_found_at_once() -> None:
    content = changed("tables", "b", to={"sharding_type": "x", "tier": "y", "shards": []})
    content["version"] = 3
    assert [error.split(":")[0] for error in errors(content)] == ["version", "tables.b.sharding_type", "tables.b.tier"]


def test_ranges_left_out_need_the_tables() -> None:
    assert errors(GOOD, known=False)[0].startswith("tables.b.shards[0].rows: is missing")


def test_an_ambiguous_bare_name() -> None:
    specs = tables(table("a"), prefix="left.") | tables(table("a"), prefix="right.")
    with pytest.raises(ConfigError, match=r"tables\.a: may be any of left\.a, right\.a; write the whole key"):
        plan_from_dict(GOOD | {"tables": {"a": GOOD["tables"]["b"]}}, specs)


def test_files_that_are_no_plan(tmp_path: Path) -> None:
    def message(text: bytes) -> str:
        (tmp_path / "plan.json").write_bytes(text)
        with pytest.raises(ConfigError) as caught:
            read_plan(tmp_path / "plan.json", T)
        return str(caught.value.findings[0]).replace(str(tmp_path), "")

    assert message(b"{") == (
        "sharding.path: '/plan.json' is not JSON: line 1, column 2: Expecting property name enclosed in double quotes"
    )
    assert message(b"\xff").startswith("sharding.path: '/plan.json' is not JSON text in UTF-8:")
    assert message(b"[" * 100_000).startswith("sharding.path: '/plan.json' is not JSON")
    assert message(b"[]") == "/plan.json: plan: must be a JSON object, not list"
    twice = plan_text(plan_for(T, "row_wise").plan).replace("embeddings.b", "embeddings.a")
    assert message(twice.encode()) == "/plan.json: tables.model.embeddings.a: stands in the file more than once"
    with pytest.raises(ConfigError, match=r"sharding\.path: cannot read '.*absent\.json': No such file or directory; "):
        read_plan(tmp_path / "absent.json")


def test_a_fingerprint_is_checked_only_if_present(tmp_path: Path) -> None:
    plan = plan_for(T, "row_wise").plan
    path = tmp_path / "plan.json"
    write_plan(path, plan, plan_fingerprint(plan, T))
    assert read_plan(path, T) == plan
    edited = path.read_text().replace("reference", "auto")
    path.write_text(edited)
    with pytest.raises(ConfigError, match=r"fingerprint: '\w{16}' is not the fingerprint of this plan .* delete the"):
        read_plan(path, T)
    path.write_text("\n".join(line for line in edited.splitlines() if "fingerprint" not in line))
    assert read_plan(path, T).tables["model.embeddings.a"].kernel == "auto"


KEYS = st.sampled_from(["rank", "ranks", "rows", "columns", "shards", "tables", "tier"])
LEAVES = st.none() | st.booleans() | st.integers(-3, 12) | st.floats() | st.sampled_from(["all", "hbm", "x", 10**30])
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)


@settings(max_examples=200, deadline=None)
@given(place=st.integers(0, 10_000), value=JSON)
def test_whatever_stands_in_a_plan_is_read_or_refused(place: int, value: Any) -> None:
    content = copy.deepcopy(GOOD)
    places = list(walk(content))
    holder, key = places[place % len(places)]
    holder[key] = value
    try:
        plan = plan_from_dict(content, T)
    except ConfigError:
        return
    check_plan(plan, T, 2, 2)


def walk(value: Any) -> Any:
    """Yield every (container, key) below ``value``."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in steps:
        yield value, key
        yield from walk(inner)


@settings(max_examples=60, deadline=None)
@given(
    mode=st.sampled_from(["table_wise", "row_wise", "column_wise", "data_parallel", "auto"]),
    world_size=st.integers(1, 40),
    shapes=st.lists(st.tuples(st.integers(1, 300), st.integers(1, 40)), min_size=1, max_size=4),
)
def test_a_plan_survives_the_file(mode: str, world_size: int, shapes: list[tuple[int, int]]) -> None:
    specs = tables(*(table(f"t{index}", rows, dim) for index, (rows, dim) in enumerate(shapes)))
    plan = plan_for(specs, mode, world_size=world_size, hardware=machine()).plan
    assert plan_from_dict(json.loads(plan_text(plan, "0" * 16))) == plan
