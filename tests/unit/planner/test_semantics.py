"""R6, the plan's side: what a row-wise optimizer does on tables that are split by columns, and who can do it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from neo.errors import ConfigError
from neo.ops import spec as ops_spec
from neo.ops.spec import FbgemmStatus
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.report import plan_report
from neo.plan.serialize import write_plan
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingType
from neo.planner.planner import PlanResult
from unit.plan.builders import machine, plan_for, table, tables

SPLIT = ["column_wise", "table_column_wise", "grid"]
TWO_NODES = machine(accelerators_per_node=2, num_nodes=2)
NAMED = tables(table("a"), table("b", dim=4), prefix="")
SHARED = "fbgemm does not share a row's rowwise_adagrad state over column shards"


@pytest.fixture(autouse=True)
def _working_fbgemm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops_spec, "fbgemm_status", lambda: FbgemmStatus(True))


def planned(mode: str, optimizer: str = "rowwise_adagrad", **options: object) -> PlanResult:
    chosen: dict[str, object] = {"world_size": 4, "hardware": TWO_NODES, "ops_backend": "auto"} | options
    return plan_for(NAMED, mode, optimizer=optimizer, **chosen)  # type: ignore[arg-type]


def uncut(mode: str) -> str:
    """Return what is told of 'b' where fbgemm holds it."""
    simpler = "table_row_wise" if mode == "grid" else "table_wise"
    return f"b: {mode} comes to {simpler} where the columns are too few to be cut"


def kernels(result: PlanResult) -> dict[str, str]:
    return {key: placed.kernel for key, placed in result.plan.tables.items()}


@pytest.mark.parametrize("mode", SPLIT)
def test_r6_exact_takes_a_kernel_that_shares_the_state_of_rows(mode: str) -> None:
    result = planned(mode)
    # 'b' is as wide as the narrowest shard of fbgemm, so its columns stay together and nothing has to be shared.
    assert len(result.plan.tables["b"].column_ranges) == 1
    assert kernels(result) == {"a": "reference", "b": "fbgemm"}
    assert result.fallbacks == (f"a: kernel reference in place of fbgemm: {SHARED}", uncut(mode))
    assert result.column_wise_semantics is ColumnWiseSemantics.EXACT
    assert result.per_shard == ()
    assert "per_shard" not in plan_report(result.view)


@pytest.mark.parametrize("mode", SPLIT)
def test_r6_per_shard_keeps_the_fused_kernel_and_is_said(mode: str) -> None:
    result = planned(mode, semantics=ColumnWiseSemantics.PER_SHARD)
    assert kernels(result) == {"a": "fbgemm", "b": "fbgemm"}
    assert result.fallbacks == (uncut(mode),)
    assert result.column_wise_semantics is ColumnWiseSemantics.PER_SHARD
    assert result.per_shard == result.view.per_shard == ("a",)
    report = " ".join(plan_report(result.view).split())
    assert f"{mode} 2x per_shard fbgemm" in report
    assert "column_wise_semantics is per_shard: on 1 table each column shard keeps its own rowwise_adagrad" in report


@pytest.mark.parametrize("mode", SPLIT)
def test_r6_state_per_element_needs_nothing_shared(mode: str) -> None:
    for semantics in ColumnWiseSemantics:
        result = planned(mode, "adagrad", semantics=semantics)
        assert kernels(result) == {"a": "fbgemm", "b": "fbgemm"}
        assert result.column_wise_semantics is ColumnWiseSemantics.EXACT


@pytest.mark.parametrize("mode", ["table_wise", "row_wise", "table_row_wise"])
def test_r6_whole_rows_need_nothing_shared(mode: str) -> None:
    assert set(kernels(planned(mode)).values()) == {"fbgemm"}


@pytest.mark.parametrize("mode", SPLIT)
def test_r6_a_kernel_asked_for_by_name_is_refused_with_the_table_and_a_fix(mode: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(mode, ops_backend="fbgemm")
    assert [str(finding) for finding in caught.value.findings] == [
        f"ops.backend: {SHARED}, and those of a are split; use ops=auto, which gives such tables to another backend, "
        "or sharding.column_wise_semantics=per_shard"
    ]
    assert set(kernels(planned(mode, ops_backend="reference")).values()) == {"reference"}


def test_r6_a_given_plan_is_asked_the_same(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    made = planned("grid", semantics=ColumnWiseSemantics.PER_SHARD).plan
    write_plan(path, replace(made, column_wise_semantics=None))  # As a plan written by hand may be.
    given = planned("file", path=str(path))
    assert kernels(given) == {"a": "reference", "b": "fbgemm"}
    assert given.fallbacks == (f"a: kernel reference in place of fbgemm: {SHARED}",)
    assert given.plan.column_wise_semantics is ColumnWiseSemantics.EXACT
    per_shard = planned("file", path=str(path), semantics=ColumnWiseSemantics.PER_SHARD)
    assert (kernels(per_shard), per_shard.per_shard) == ({"a": "fbgemm", "b": "fbgemm"}, ("a",))
    with pytest.raises(ConfigError, match=f"ops.backend: {SHARED}, and those of a are split"):
        planned("file", path=str(path), ops_backend="fbgemm")


@pytest.mark.parametrize("made", list(ColumnWiseSemantics))
def test_r6_a_plan_says_its_semantics_and_is_run_with_them(tmp_path: Path, made: ColumnWiseSemantics) -> None:
    """The plans differ in nothing else: with the reference backend every kernel is the same."""
    path = tmp_path / "plan.json"
    result = planned("grid", semantics=made, ops_backend="reference")
    write_plan(path, result.plan, result.fingerprint)
    assert json.loads(path.read_text())["column_wise_semantics"] == made
    for asked in (None, made):
        given = planned("file", path=str(path), semantics=asked, ops_backend="reference")
        assert (given.plan, given.fingerprint) == (result.plan, result.fingerprint)
        assert given.column_wise_semantics is made
        assert given.per_shard == (("a", "b") if made is ColumnWiseSemantics.PER_SHARD else ())
    other = next(semantics for semantics in ColumnWiseSemantics if semantics is not made)
    assert planned("grid", semantics=other, ops_backend="reference").fingerprint != result.fingerprint
    with pytest.raises(ConfigError) as caught:
        planned("file", path=str(path), semantics=other, ops_backend="reference")
    assert [str(finding) for finding in caught.value.findings] == [
        f"sharding.column_wise_semantics: '{other}' contradicts '{path}', which was planned with '{made}'; "
        "leave it out to train as planned, or plan again with it"
    ]


def test_r6_plans_that_do_not_depend_on_the_semantics_stay_as_they_are(tmp_path: Path) -> None:
    for mode, optimizer in (("row_wise", "rowwise_adagrad"), ("grid", "adagrad")):
        assert planned(mode, optimizer).plan.column_wise_semantics is None
        told = "column_wise_semantics: per_shard has no effect: no table with a row-wise optimizer is split by columns"
        assert told in planned(mode, optimizer, semantics=ColumnWiseSemantics.PER_SHARD).fallbacks
    path = tmp_path / "plan.json"
    write_plan(path, planned("grid", semantics=ColumnWiseSemantics.PER_SHARD).plan)
    given = planned("file", "adagrad", path=str(path))
    assert given.plan.column_wise_semantics is None
    assert given.fallbacks == (told.replace("per_shard has", "the plan's per_shard has"),)
    write_plan(path, planned("row_wise").plan)
    with pytest.raises(ConfigError) as caught:
        planned("file", path=str(path), semantics=ColumnWiseSemantics.PER_SHARD)
    assert [str(finding) for finding in caught.value.findings] == [
        f"sharding.column_wise_semantics: 'per_shard' has no effect on the plan '{path}': no table with a row-wise "
        "optimizer is split by columns; leave it out"
    ]


def test_r6_each_table_has_its_own_optimizer() -> None:
    own = {"a": SparseOptimizerSpec(name="sgd")}
    wide = tables(table("a"), table("c"), prefix="")
    result = plan_for(
        wide,
        "grid",
        world_size=4,
        hardware=TWO_NODES,
        optimizer="rowwise_adagrad",
        ops_backend="auto",
        table_optimizers=own,
    )
    assert kernels(result) == {"a": "fbgemm", "c": "reference"}
    assert result.view.optimizers == {"a": own["a"], "c": SparseOptimizerSpec(name="rowwise_adagrad")}


def test_auto_splits_rows_where_split_columns_would_have_to_share_state() -> None:
    wide = tables(table("a", rows=100_000, dim=128), table("b", rows=1000), prefix="")
    exact = plan_for(wide, optimizer="rowwise_adagrad")
    assert exact.plan.tables["a"].sharding_type is ShardingType.ROW_WISE
    cheaper = plan_for(wide, optimizer="rowwise_adagrad", semantics=ColumnWiseSemantics.PER_SHARD)
    assert cheaper.plan.tables["a"].sharding_type is ShardingType.COLUMN_WISE
    assert cheaper.per_shard == ("a",)
