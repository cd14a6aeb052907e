import pytest
import torch
from torch import nn

from neo.errors import ConfigError, UnsupportedError
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingPlan
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.strategy.collections import find_collections, optimizers_by_key, sparse_groups, tables_by_key
from neo.strategy.neo_strategy import NeoStrategy
from neo.tables.spec import TableSpec


class TwoTowers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user = EmbeddingBagCollection([TableSpec("id", 4, 4, ("id",))])
        self.item = nn.ModuleDict({"tower": EmbeddingBagCollection([TableSpec("id", 5, 4, ("id",))])})


def test_tables_of_one_name_in_two_modules_have_two_keys() -> None:
    tables = tables_by_key(find_collections(TwoTowers()))
    assert [(key, table.num_embeddings) for key, table in tables.items()] == [("user.id", 4), ("item.tower.id", 5)]


def test_every_table_has_its_optimizer() -> None:
    own = SparseOptimizerSpec(name="sgd", lr=0.5)
    tables = [TableSpec("a", 4, 4, ("a",)), TableSpec("b", 4, 4, ("b",))]
    collection = EmbeddingBagCollection(tables, table_optimizers={"b": own})
    assert optimizers_by_key({"path": collection}) == {"path.a": SparseOptimizerSpec(), "path.b": own}


def test_a_module_without_collections_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Linear holds no EmbeddingBagCollection"):
        find_collections(nn.Linear(1, 1))


def test_groups_are_found_by_collection() -> None:
    module = TwoTowers()
    first, second = module.user.sparse_parameter_group(), module.item["tower"].sparse_parameter_group()  # type: ignore[operator]
    optimizer = torch.optim.SGD([second | {"lr": 2.0}, first | {"lr": 1.0}])
    groups = sparse_groups(find_collections(module), [optimizer])
    assert {path: group["lr"] for path, group in groups.items()} == {"user": 1.0, "item.tower": 2.0}


def test_a_missing_group_is_told_with_the_line_to_write() -> None:
    module = TwoTowers()
    optimizer = torch.optim.Adam([{"params": [nn.Parameter(torch.ones(1))]}, module.user.sparse_parameter_group()])
    with pytest.raises(UnsupportedError) as error:
        sparse_groups(find_collections(module), [optimizer])
    assert "gives the collection 'item.tower' no parameter group" in str(error.value)
    assert "torch.optim.Adam([" in str(error.value)
    assert "self.item.tower.sparse_parameter_group()]" in str(error.value)


def test_a_group_mixed_with_dense_parameters_is_no_group_of_its_own() -> None:
    module = EmbeddingBagCollection([TableSpec("id", 4, 4, ("id",))])
    mixed = [nn.Parameter(torch.ones(1)), *module.sparse_parameter_group()["params"]]
    with pytest.raises(UnsupportedError, match="no parameter group"):
        sparse_groups({"embeddings": module}, [torch.optim.SGD(mixed, lr=0.1)])


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as error:
        NeoStrategy(sharding="rowise", column_wise_semantics="exactly", uneven="padd")
    assert "sharding: 'rowise' is not a sharding type; did you mean 'row_wise'?" in str(error.value)
    assert "column_wise_semantics: 'exactly' is not a column-wise semantics; did you mean 'exact'?" in str(error.value)
    assert "uneven: 'padd' is not a policy for uneven loaders; did you mean 'pad'?" in str(error.value)


def test_semantics_other_than_those_of_the_plan_are_refused() -> None:
    plan = ShardingPlan(1, 1, {}, ColumnWiseSemantics.PER_SHARD)
    NeoStrategy(plan=plan)
    NeoStrategy(plan=plan, column_wise_semantics="per_shard")
    with pytest.raises(ConfigError) as caught:
        NeoStrategy(plan=plan, column_wise_semantics="exact")
    assert [str(finding) for finding in caught.value.findings] == [
        "column_wise_semantics: 'exact' contradicts the plan, which was made with 'per_shard'; leave it out to train "
        "as planned"
    ]
