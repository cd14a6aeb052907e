import dataclasses
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neo.errors import ConfigError, InfeasiblePlanError
from neo.ops import spec as ops_spec
from neo.ops.spec import Capability, Device, FbgemmStatus
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.check import check_plan
from neo.plan.memory import rank_bytes
from neo.plan.serialize import plan_from_dict, plan_to_dict, write_plan
from neo.plan.sharding_plan import ColumnWiseSemantics, Shard, ShardingType, Tier
from neo.planner.capacity import Shortage, ShortOfMemoryError
from neo.planner.planner import make_plan
from neo.planner.spec import ShardingSpec
from neo.tables.spec import TableSpec, WeightsDtype
from unit.plan.builders import GB, machine, plan_for, table, tables

MODES = [*ShardingType, "auto"]


@pytest.fixture
def working_fbgemm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops_spec, "fbgemm_status", lambda: FbgemmStatus(True))


def widths(shards: tuple[Shard, ...]) -> list[int]:
    return [shard.num_columns for shard in shards]


shapes = st.tuples(st.integers(1, 3000), st.integers(1, 70), st.floats(0.5, 60))


@settings(max_examples=120, deadline=None)
@given(
    mode=st.sampled_from(MODES),
    overrides=st.dictionaries(st.integers(0, 5), st.sampled_from(MODES[:-1]), max_size=3),
    world_size=st.integers(1, 9),
    per_node=st.integers(1, 8),
    specs=st.lists(shapes, min_size=1, max_size=6),
    optimizer=st.sampled_from(["sgd", "rowwise_adagrad", "adam"]),
    order=st.randoms(use_true_random=False),
)
def test_r27_every_plan_tiles_every_table_once_and_does_not_depend_on_their_order(
    mode: str,
    overrides: dict[int, str],
    world_size: int,
    per_node: int,
    specs: list[tuple[int, int, float]],
    optimizer: str,
    order: random.Random,
) -> None:
    named = tables(*(table(f"t{index}", *shape) for index, shape in enumerate(specs)))
    forced = {f"t{index}": kind for index, kind in overrides.items() if index < len(specs)}
    hardware = machine(accelerators_per_node=per_node, num_nodes=3)

    def plan(given_tables: dict[str, TableSpec]) -> tuple[object, str]:
        result = plan_for(
            given_tables,
            mode,
            world_size=world_size,
            optimizer=optimizer,
            hardware=hardware,
            overrides=forced,
            ops_backend="auto",
        )
        assert check_plan(result.plan, named, world_size, min(per_node, world_size)) == []
        return plan_to_dict(result.plan), result.fingerprint

    items = list(named.items())
    first = plan(dict(items))
    order.shuffle(items)
    assert plan(dict(items)) == first
    placed = plan_from_dict(first[0]).tables
    for name, kind in forced.items():
        assert placed[f"model.embeddings.{name}"].sharding_type == kind


def test_row_wise_spreads_rows_evenly_and_may_leave_ranks_empty() -> None:
    plan = plan_for(tables(table("t", rows=10), prefix=""), "row_wise", world_size=4).plan
    assert [(s.row_begin, s.row_end) for s in plan.tables["t"].shards] == [(0, 3), (3, 6), (6, 8), (8, 10)]
    plan = plan_for(tables(table("t", rows=10), prefix=""), "row_wise", world_size=12).plan
    assert [s.num_rows for s in plan.tables["t"].shards] == [1] * 10 + [0, 0]
    assert [s.rank for s in plan.tables["t"].shards] == list(range(12))


def test_r8_column_widths_are_those_that_the_kernel_takes(working_fbgemm: None) -> None:
    named = tables(table("t", dim=20), prefix="")
    plan = plan_for(named, "column_wise", world_size=4, ops_backend="fbgemm").plan
    assert widths(plan.tables["t"].shards) == [8, 4, 4, 4]
    plan = plan_for(named, "column_wise", world_size=4, ops_backend="reference").plan
    assert widths(plan.tables["t"].shards) == [5, 5, 5, 5]


def test_narrow_column_wise_tables_are_dealt_so_that_ranks_are_even(working_fbgemm: None) -> None:
    named = tables(*(table(f"t{index}", dim=8) for index in range(4)))
    plan = plan_for(named, "column_wise", world_size=4, ops_backend="fbgemm").plan
    assert all(widths(placed.shards) == [4, 4] for placed in plan.tables.values())
    ranks = sorted(shard.rank for placed in plan.tables.values() for shard in placed.shards)
    assert ranks == [0, 0, 1, 1, 2, 2, 3, 3]


def test_evenly_split_columns_lie_in_the_order_of_ranks() -> None:
    named = tables(table("a", dim=64), table("b", rows=7, dim=32), table("c", rows=5000, dim=8))
    plan = plan_for(named, "column_wise", world_size=4).plan
    assert all([shard.rank for shard in placed.shards] == [0, 1, 2, 3] for placed in plan.tables.values())


def test_table_wise_balances_bytes_and_lookups() -> None:
    named = tables(*(table(f"t{index:02}", rows=1000) for index in range(10)))
    plan = plan_for(named, "table_wise", world_size=2).plan
    sizes = [
        rank[Tier.HBM].total for rank in rank_bytes(plan, dict.fromkeys(plan.tables, SparseOptimizerSpec(name="sgd")))
    ]
    assert sizes[0] == sizes[1]


def test_auto_replicates_tiny_tables_and_splits_what_outweighs_a_rank() -> None:
    named = tables(table("huge", rows=100_000), table("tiny", rows=10), *(table(f"t{i}", rows=1000) for i in range(4)))
    plan = plan_for(named, world_size=4, optimizer="rowwise_adagrad").plan
    kinds = {key.rpartition(".")[2]: placed.sharding_type.value for key, placed in plan.tables.items()}
    assert kinds == {"huge": "row_wise", "tiny": "data_parallel"} | {f"t{i}": "table_wise" for i in range(4)}


def test_auto_splits_columns_only_where_that_changes_nothing() -> None:
    named = tables(table("wide", rows=100_000, dim=128), table("other", rows=1000), prefix="")

    def kind(optimizer: str, semantics: ColumnWiseSemantics = ColumnWiseSemantics.EXACT) -> str:
        plan = plan_for(named, optimizer=optimizer, semantics=semantics).plan
        return plan.tables["wide"].sharding_type.value

    assert kind("sgd") == "column_wise"
    assert kind("rowwise_adagrad") == "row_wise"
    assert kind("rowwise_adagrad", ColumnWiseSemantics.PER_SHARD) == "column_wise"


def test_auto_splits_a_table_that_fits_on_no_rank() -> None:
    named = tables(*(table(f"t{index}", rows=1000, dim=100) for index in range(6)), prefix="")
    plan = plan_for(named, world_size=4, hardware=machine(hbm_bytes=650_000)).plan
    assert any(placed.sharding_type is ShardingType.ROW_WISE for placed in plan.tables.values())
    assert all(
        rank[Tier.HBM].total <= 650_000
        for rank in rank_bytes(plan, dict.fromkeys(plan.tables, SparseOptimizerSpec(name="sgd")))
    )


def test_auto_keeps_tables_whole_where_splitting_does_not_pay() -> None:
    named = tables(*(table(f"t{i}", rows=1000, dim=16, pooling_factor=1 + i % 2) for i in range(8)))
    plan = plan_for(named, world_size=8, optimizer="rowwise_adagrad").plan
    assert {placed.sharding_type for placed in plan.tables.values()} == {ShardingType.TABLE_WISE}
    assert sorted(placed.shards[0].rank for placed in plan.tables.values()) == list(range(8))


def test_a_model_without_tables_has_an_empty_plan() -> None:
    assert plan_for({}).plan.tables == {}


def test_on_one_rank_everything_is_whole() -> None:
    plan = plan_for(tables(table("a"), table("b", rows=3)), world_size=1).plan
    assert {placed.sharding_type for placed in plan.tables.values()} == {ShardingType.TABLE_WISE}


def test_an_override_frees_or_forces_one_table() -> None:
    named = tables(table("a", rows=1000), table("b", rows=1000))
    plan = plan_for(named, "table_wise", overrides={"a": "row_wise", "model.embeddings.b": "data_parallel"}).plan
    assert [placed.sharding_type.value for placed in plan.tables.values()] == ["row_wise", "data_parallel"]


def test_overrides_of_unknown_tables_come_with_the_nearest_name() -> None:
    named = tables(table("user_id"), table("item"))
    with pytest.raises(ConfigError) as caught:
        plan_for(named, overrides={"usr_id": "row_wise", "item": "row_wise", "model.embeddings.item": "row_wise"})
    assert [str(finding) for finding in caught.value.findings] == [
        "sharding.tables.usr_id: 'usr_id' is not a table; did you mean 'user_id'? Choices: item, user_id",
        "sharding.tables.model.embeddings.item: is the table that sharding.tables.item names too; keep one of them",
    ]


def test_overrides_of_unknown_tables_among_very_many() -> None:
    named = tables(*(table(f"table_{index}") for index in range(100)))
    with pytest.raises(
        ConfigError, match=r"'tabel_7' is not a table; did you mean 'table_7'\? \(the model has 100 tables\)"
    ):
        plan_for(named, overrides={"tabel_7": "row_wise"})


def test_an_override_that_may_mean_two_tables() -> None:
    named = tables(table("a"), prefix="left.") | tables(table("a"), prefix="right.")
    with pytest.raises(
        ConfigError, match=r"sharding\.tables\.a: 'a' may be any of left\.a, right\.a; name one of them"
    ):
        plan_for(named, overrides={"a": "row_wise"})


def test_kernels_follow_the_capability_matrix_and_fallbacks_are_told(working_fbgemm: None) -> None:
    named = tables(table("a", dim=8), table("b", dim=10), table("c", dim=10), prefix="")
    result = plan_for(named, "table_wise", ops_backend="auto")
    assert [placed.kernel for placed in result.plan.tables.values()] == ["fbgemm", "reference", "reference"]
    assert result.fallbacks == (
        "b, c: kernel reference in place of fbgemm: fbgemm needs widths that are multiples of 4; the width is 10",
    )


def test_data_parallel_tables_are_held_by_the_reference(working_fbgemm: None) -> None:
    named = tables(table("a", dim=10), table("b", dim=8), prefix="")
    for ops_backend, fallbacks in (
        ("fbgemm", ("a, b: kernel reference in place of fbgemm: data_parallel tables are held by it",)),
        ("auto", ()),
        ("reference", ()),
    ):
        result = plan_for(named, "data_parallel", ops_backend=ops_backend)
        assert {placed.kernel for placed in result.plan.tables.values()} == {"reference"}
        assert result.fallbacks == fallbacks


def test_a_missing_fbgemm_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops_spec, "fbgemm_status", lambda: FbgemmStatus(False, "fbgemm_gpu is not installed"))
    result = plan_for(tables(*(table(f"t{index}") for index in range(5))), ops_backend="auto")
    assert result.fallbacks == (
        "t0, t1, t2 and 2 more: kernel reference in place of fbgemm: fbgemm_gpu is not installed",
    )


def test_a_backend_asked_for_by_name_refuses_every_table_it_cannot_hold(working_fbgemm: None) -> None:
    named = tables(table("a", dim=8), table("b", dim=10), table("c", dim=3))
    with pytest.raises(ConfigError) as caught:
        plan_for(named, ops_backend="fbgemm", overrides={"x": "row_wise"})
    fix = "use ops=auto, which gives such tables to another backend"
    assert [str(finding) for finding in caught.value.findings] == [
        "sharding.tables.x: 'x' is not a table; Choices: a, b, c",
        f"ops.backend: fbgemm needs widths that are multiples of 4; 'b' has 10; {fix}",
        f"ops.backend: fbgemm needs widths that are multiples of 4; 'c' has 3; {fix}",
    ]


def test_an_optimizer_that_a_backend_lacks_is_told_once(working_fbgemm: None) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_for(tables(table("a"), table("b")), ops_backend="fbgemm", optimizer="adam")
    assert len(caught.value.findings) == 1
    assert "fbgemm has no adam on cpu" in str(caught.value)


def test_weights_that_no_backend_trains_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    less = Capability("reference", Device.CPU, frozenset({"sgd", "rowwise_adagrad"}), frozenset({WeightsDtype.FP32}))
    monkeypatch.setitem(ops_spec._CAPABILITIES, ("reference", Device.CPU), less)
    with pytest.raises(ConfigError, match=r"reference does not train fp16 weights on cpu .* no other backend takes it"):
        make_plan(
            tables(table("a")),
            sharding=ShardingSpec(),
            hardware=machine(),
            world_size=2,
            optimizer=SparseOptimizerSpec(weights_dtype=WeightsDtype.FP16),
            ops_backend="auto",
            device=Device.CPU,
        )


def test_r25_what_fits_depends_on_the_optimizer_s_state() -> None:
    named = tables(table("t", rows=1_000_000, dim=64), prefix="")
    small = machine(hbm_bytes=600_000_000, ddr_bytes=0)
    for optimizer in ("sgd", "rowwise_adagrad", "adagrad"):
        plan_for(named, world_size=1, hardware=small, optimizer=optimizer)
    with pytest.raises(InfeasiblePlanError) as caught:
        plan_for(named, world_size=1, hardware=small, optimizer="adam")
    assert caught.value.exit_code == 3
    assert str(caught.value) == (
        "no plan fits: table 't' finds no place however it is split.\n"
        "  It needs 768,000,000 B (732.4 MiB) of hbm on one rank; an empty rank has 600,000,000 B (572.2 MiB).\n"
        "  All tables once, with optimizer state, are 768,000,000 B (732.4 MiB); "
        "1 rank has 600,000,000 B (572.2 MiB).\n"
        "  Binding constraint: hardware.accelerator.hbm.capacity."
    )
    assert isinstance(caught.value, ShortOfMemoryError)
    assert caught.value.shortage == Shortage(Tier.HBM, "t", 768_000_000, 600_000_000, 768_000_000, 600_000_000)


def test_r26_two_tables_that_no_sharding_fits() -> None:
    named = tables(*(table(name, rows=100_000_000, dim=128) for name in ("a", "b")), prefix="")
    for mode in MODES:
        with pytest.raises(InfeasiblePlanError) as caught:
            plan_for(named, mode, hardware=machine(hbm_bytes=40 * GB))
        message = str(caught.value)
        assert "no plan fits: table '" in message
        assert "Binding constraint: hardware.accelerator.hbm.capacity." in message
        assert "was planned and fits" not in message


def test_r26_a_forced_type_that_does_not_fit_where_another_does() -> None:
    named = tables(table("a", rows=100_000_000, dim=128), prefix="")
    with pytest.raises(InfeasiblePlanError) as caught:
        plan_for(named, "table_wise", hardware=machine(hbm_bytes=40 * GB))
    message = str(caught.value)
    assert "table 'a' finds no place with the forced type table_wise.\n  It needs 51,200,000,000 B" in message
    assert message.endswith("\n  sharding=auto without overrides was planned and fits.")


def test_a_packing_that_was_not_found_is_not_called_impossible() -> None:
    named = tables(*(table(f"t{index}", rows=rows, dim=1) for index, rows in enumerate((3, 3, 2, 2, 2))), prefix="")
    with pytest.raises(InfeasiblePlanError, match="no plan was found: table") as caught:
        plan_for(named, "table_wise", hardware=machine(hbm_bytes=24))
    assert "It needs 8 B of hbm on one rank; the best rank (0) has 4 B left of 24 B." in str(caught.value)


def test_hbm_that_is_switched_off_holds_nothing() -> None:
    with pytest.raises(InfeasiblePlanError, match=r"a rank has none \(the tier is switched off\)\."):
        plan_for(tables(table("t")), hardware=machine(hbm_bytes=0))


def test_r29_the_plan_does_not_change_with_a_little_memory() -> None:
    named = tables(*(table(f"t{index}", rows=1000 * (index + 1)) for index in range(9)))
    first, second = (plan_for(named, hardware=machine(hbm_bytes=40 * GB + extra)) for extra in (0, 123_456))
    assert first.fingerprint == second.fingerprint
    assert plan_for(named, world_size=3).fingerprint != first.fingerprint


class TestGivenPlans:
    TABLES = tables(table("a", rows=10), table("b", rows=6))

    def write(self, folder: Path, **changes: object) -> str:
        plan = plan_for(self.TABLES, "row_wise").plan
        key = "model.embeddings.a"
        changed = dataclasses.replace(plan.tables[key], **changes)  # type: ignore[arg-type]
        write_plan(folder / "plan.json", dataclasses.replace(plan, tables={**plan.tables, key: changed}))
        return str(folder / "plan.json")

    def refused(self, path: str, world_size: int = 2, specs: dict[str, TableSpec] | None = None) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            plan_for(self.TABLES if specs is None else specs, "file", path=path, world_size=world_size)
        return [str(finding).replace(path, "plan.json") for finding in caught.value.findings]

    def test_a_plan_is_read_back(self, tmp_path: Path) -> None:
        path = self.write(tmp_path)
        planned = plan_for(self.TABLES, "row_wise")
        assert plan_for(self.TABLES, "file", path=path).plan == planned.plan
        assert plan_for(self.TABLES, "file", path=path).fingerprint == planned.fingerprint

    def test_r27_another_world_node_size_or_table_set_is_refused(self, tmp_path: Path) -> None:
        path = self.write(tmp_path)
        assert self.refused(path, world_size=3)[0] == (
            "plan.json: world_size: the plan was made for 2, but this run has 3; plan again for this world"
        )
        one_per_node = machine(accelerators_per_node=1, num_nodes=2)
        with pytest.raises(ConfigError, match="local_world_size: the plan was made for 2, but this run has 1"):
            plan_for(self.TABLES, "file", path=path, hardware=one_per_node)
        assert self.refused(path, specs=self.TABLES | tables(table("c"))) == [
            "plan.json: tables.model.embeddings.c: this table of the model is not in the plan; add it"
        ]

    def test_r27_a_table_that_is_not_tiled_is_refused(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, shards=(Shard(0, 0, 4, 0, 8), Shard(1, 5, 10, 0, 8)))
        assert self.refused(path) == [
            "plan.json: tables.model.embeddings.a.shards: rows [4, 5) are in no shard; add a shard with rows: [4, 5], "
            "or let a neighbour reach over them"
        ]

    def test_tiers_and_caches_are_not_executed_yet(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, tier=Tier.DDR, cache_bytes=100)
        assert self.refused(path) == [
            "plan.json: tables.model.embeddings.a.tier: 'ddr' is not executed yet: tables are held in hbm only; write "
            "hbm, and plan again if it does not fit",
            "plan.json: tables.model.embeddings.a.cache_bytes: 100: caches are not executed yet; write 0",
        ]

    def test_unknown_kernels_are_refused(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, kernel="fbgem")
        assert self.refused(path) == [
            "plan.json: tables.model.embeddings.a.kernel: 'fbgem' is not a known ops backend; did you mean 'fbgemm'? "
            "Choices: auto, fbgemm, reference"
        ]

    def test_a_missing_file_is_a_configuration_error(self, tmp_path: Path) -> None:
        assert self.refused(str(tmp_path / "plan.json")) == [
            "sharding.path: cannot read 'plan.json': No such file or directory; name a plan.json"
        ]

    def test_the_plan_s_kernels_stay_unless_the_run_asks_for_others(self, tmp_path: Path, working_fbgemm: None) -> None:
        path = self.write(tmp_path, kernel="auto")

        def kernels(ops_backend: str) -> tuple[list[str], tuple[str, ...]]:
            result = plan_for(self.TABLES, "file", path=path, ops_backend=ops_backend)
            return [placed.kernel for placed in result.plan.tables.values()], result.fallbacks

        assert kernels("auto") == (["fbgemm", "reference"], ())
        assert kernels("fbgemm") == (
            ["fbgemm", "fbgemm"],
            ("b: kernel fbgemm in place of the plan's reference: ops.backend=fbgemm",),
        )

    def test_data_parallel_tables_keep_their_own_kernel(self, tmp_path: Path, working_fbgemm: None) -> None:
        shards = (Shard(0, 0, 10, 0, 8), Shard(1, 0, 10, 0, 8))
        path = self.write(tmp_path, sharding_type=ShardingType.DATA_PARALLEL, shards=shards, kernel="fbgemm")
        result = plan_for(self.TABLES, "file", path=path, ops_backend="auto")
        assert [placed.kernel for placed in result.plan.tables.values()] == ["reference", "reference"]
        assert result.fallbacks == (
            "a: kernel reference in place of the plan's fbgemm: data_parallel tables are held by it",
        )

    def test_a_given_plan_that_does_not_fit_is_infeasible(self, tmp_path: Path) -> None:
        path = self.write(tmp_path)
        with pytest.raises(InfeasiblePlanError) as caught:
            plan_for(self.TABLES, "file", path=path, hardware=machine(hbm_bytes=200))
        assert str(caught.value) == (
            "the plan does not fit: rank 0 is to hold 256 B of hbm, but has 200 B.\n"
            "  Its largest table is 'model.embeddings.a' (row_wise): 160 B of it.\n"
            "  Binding constraint: hardware.accelerator.hbm.capacity."
        )

    def test_widths_that_the_kernel_refuses(self, tmp_path: Path, working_fbgemm: None) -> None:
        shards = (Shard(0, 0, 10, 0, 6), Shard(1, 0, 10, 6, 8))
        path = self.write(tmp_path, sharding_type=ShardingType.COLUMN_WISE, shards=shards, kernel="fbgemm")
        with pytest.raises(ConfigError, match="fbgemm needs widths that are multiples of 4; 'a' has 2"):
            plan_for(self.TABLES, "file", path=path, ops_backend="fbgemm")
        result = plan_for(self.TABLES, "file", path=path, ops_backend="auto")
        assert result.plan.tables["model.embeddings.a"].kernel == "reference"
        assert result.fallbacks == (
            "a: kernel reference in place of fbgemm: fbgemm needs widths that are multiples of 4; the width is 2",
        )


def test_planning_loads_no_torch() -> None:
    code = (
        "import sys, json, neo.planner.planner, neo.plan.report, neo.plan.serialize, neo.hardware.spec; "
        "print(json.dumps([n for n in ('torch', 'fbgemm_gpu', 'lightning') if n in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("mode", MODES)
def test_a_table_beyond_64_bits_is_infeasible_not_a_crash(mode: str) -> None:
    named = tables(table("a", rows=2**62, dim=64), table("b"), prefix="")
    with pytest.raises(InfeasiblePlanError, match="no plan fits: table 'a' finds no place"):
        plan_for(named, mode)
