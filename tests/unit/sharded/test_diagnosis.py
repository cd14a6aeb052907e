"""NaN and infinite values are found where they are, also after a codec has carried them."""

import pytest
import torch
from torch import Tensor

from neo.comms.collectives import Collectives
from neo.comms.spec import CommsSpec
from neo.data.batch import SparseFeatures
from neo.ops.pooled_lookup import LocalTable
from neo.ops.spec import POOLED_LOOKUPS, Device, refusal
from neo.optim.spec import SPARSE_OPTIMIZERS, SparseOptimizerSpec
from neo.plan.sharding_plan import Shard, ShardingType
from neo.sharded.diagnosis import NonFinite, first_non_finite
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.tables.spec import TableSpec, WeightsDtype
from neo.testing.fake_collectives import run_ranks
from placements import plan_for

TABLES = (TableSpec("user", 8, 4, ("user",)), TableSpec("items", 10, 8, ("seen", "bought")))
NAMES = ("user", "items.seen", "items.bought")
NAN, INF = float("nan"), float("inf")


def _weights(value: float = 0.0, table: int = 1, row: int = 2) -> dict[int, Tensor]:
    weights = {index: torch.zeros(t.num_embeddings, t.embedding_dim) for index, t in enumerate(TABLES)}
    weights[table][row, 1] = value
    return weights


def _find(outputs: dict[str, Tensor], weights: dict[int, Tensor], row_begin: int = 0) -> str | None:
    def shards(index: int) -> list[tuple[Shard, Tensor, dict[str, Tensor]]]:
        rows, columns = weights[index].shape
        return [(Shard(0, row_begin, row_begin + rows, 0, columns), weights[index], {})]

    found = first_non_finite(TABLES, NAMES, outputs, shards)
    return None if found is None else f"{found.stage}: {found}"


def _outputs(value: float, name: str) -> dict[str, Tensor]:
    outputs = {"user": torch.ones(5, 4), "items.seen": torch.ones(5, 8), "items.bought": torch.ones(5, 8)}
    outputs[name][3, -1] = outputs[name][4, 0] = value
    return outputs


def test_where_all_is_finite_nothing_is_found() -> None:
    assert _find(_outputs(3e38, "user"), _weights(-3e38)) is None
    assert _find({}, _weights()) is None


@pytest.mark.parametrize(("value", "kind"), [(NAN, "NaN"), (INF, "inf"), (-INF, "inf")])
def test_an_output_is_named_by_table_and_feature(value: float, kind: str) -> None:
    assert _find(_outputs(value, "items.bought"), _weights()) == (
        f"lookup or output_dist: table 'items', feature 'bought': 2 of 5 output rows hold {kind} (first: row 3)"
    )


def test_the_row_of_its_table_is_named_if_this_rank_holds_it() -> None:
    assert _find(_outputs(NAN, "items.seen"), _weights(NAN), row_begin=10) == (
        "lookup: table 'items', feature 'seen': 2 of 5 output rows hold NaN (first: row 3); "
        "row 12 of the weights of table 'items' holds NaN"
    )


@pytest.mark.parametrize("table", [0, 1])
def test_without_an_output_the_weights_are_searched(table: int) -> None:
    name = TABLES[table].name
    assert _find({}, _weights(INF, table)) == (
        f"sparse update of an earlier step: row 2 of the weights of table '{name}' holds inf"
    )


def test_a_big_table_is_searched_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neo.sharded.diagnosis._BLOCK_ELEMENTS", 24)
    assert _find({}, _weights(NAN, row=7)) == (
        "sparse update of an earlier step: row 7 of the weights of table 'items' holds NaN"
    )


def _able() -> list[tuple[str, SparseOptimizerSpec]]:
    """Return every backend with every optimizer and weight type that it takes."""
    optimizers = [
        SparseOptimizerSpec(name, lr=0.1, weights_dtype=dtype) for name in SPARSE_OPTIMIZERS for dtype in WeightsDtype
    ]
    each = [(backend, optimizer) for backend in POOLED_LOOKUPS for optimizer in optimizers]
    return [(backend, asked) for backend, asked in each if refusal(backend, Device.CPU, TABLES[0], 4, asked) is None]


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize(
    ("backend", "optimizer"),
    _able(),
    ids=lambda asked: getattr(asked, "name", asked) + getattr(asked, "weights_dtype", ""),
)
def test_no_optimizer_hides_a_gradient_that_is_not_finite(
    backend: str, optimizer: SparseOptimizerSpec, value: float
) -> None:
    """The row that it belongs to shows it, so that the next forward does; no other row changes for it."""
    device = torch.device("cpu")
    lookup = POOLED_LOOKUPS.get(backend)([LocalTable("user", 8, 4)], slots=[0], optimizer=optimizer, device=device)
    lookup.weights()[0].fill_(1.0)
    pooled = lookup(torch.tensor([3, 4]), torch.tensor([0, 1, 2]), None)
    gradient = torch.ones_like(pooled)
    gradient[0, 2] = value
    pooled.backward(gradient)
    (weight,) = lookup.weights()
    assert not weight[3, 2].isfinite()
    assert weight[[0, 1, 2, 4, 5, 6, 7]].isfinite().all()


def _batch() -> SparseFeatures:
    """Two samples: user 1 and 2, seen 3 and 4, bought 5 and 6."""
    return SparseFeatures(("user", "seen", "bought"), torch.ones(6, dtype=torch.int64), torch.arange(1, 7))


@pytest.mark.parametrize("kind", [ShardingType.TABLE_WISE, ShardingType.ROW_WISE])
@pytest.mark.parametrize("codec", ["fp32", "fp16", "bf16", "int8"])
@pytest.mark.parametrize("value", [NAN, INF])
def test_a_gradient_that_is_not_finite_shows_in_the_next_forward(kind: ShardingType, codec: str, value: float) -> None:
    """One rank's bad gradient reaches the rows it read, through every codec, and no others."""

    def rank(comms: Collectives) -> tuple[NonFinite | None, NonFinite | None, NonFinite | None]:
        collection = EmbeddingBagCollection(TABLES, optimizer=SparseOptimizerSpec("sgd", lr=0.5))
        plan, keys = plan_for(TABLES, kind, 2, "reference"), {table.name: table.name for table in TABLES}
        device = torch.device("cpu")
        collection.shard(plan=plan, keys=keys, collectives=comms, device=device, seed=0, comms=CommsSpec(codec, codec))
        pooled = collection(_batch())
        before = collection.find_non_finite()
        gradient = torch.ones_like(pooled)
        if comms.rank == 0:
            gradient[1, 4 + 3] = value  # sample 1, feature 'seen' of 'items', which reads row 4
        pooled.backward(gradient)
        with torch.no_grad():
            sound = collection(SparseFeatures(("user", "seen", "bought"), torch.tensor([1, 0, 0]), torch.tensor([1])))
        assert sound.isfinite().all()
        held = collection.find_non_finite()
        with torch.no_grad():
            collection(_batch())
        return before, held, collection.find_non_finite()

    found = run_ranks(2, rank)
    assert [before for before, _, _ in found] == [None, None]
    rows = {held for _, held, _ in found} - {None}
    assert len(rows) == 1 and str(rows.pop()).startswith("row 4 of the weights of table 'items' holds ")
    for _, _, after in found:
        assert str(after).startswith("table 'items', feature 'seen': 1 of 2 output rows hold ")
