"""What is said about a loss that is not finite: step, rank, and the first bad value in the order of the forward."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from neo.comms.collectives import Collectives
from neo.data.batch import Batch, SparseFeatures
from neo.errors import DivergedError
from neo.optim.spec import OptimConfig, SparseOptimizerSpec
from neo.plan.sharding_plan import ShardingType
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.strategy.divergence import LossGuard, find_cause
from neo.strategy.lightning_module import RecommendationModule
from neo.tables.spec import TableSpec
from neo.testing.fake_collectives import run_ranks
from placements import plan_for

TABLE = TableSpec("user", 6, 4, ("user",))
NAN, INF = float("nan"), float("inf")
LOWER = "lower optim.sparse.lr or optim.dense.lr, or check the data"


class Model(nn.Module):
    """One layer over two dense columns and one pooled row."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = EmbeddingBagCollection([TABLE], optimizer=SparseOptimizerSpec("sgd"))
        self.layer = nn.Linear(6, 1)

    def forward(self, dense: Tensor, sparse: SparseFeatures) -> Tensor:
        return self.layer(torch.cat([dense, self.embeddings(sparse)], dim=1)).squeeze(1)  # type: ignore[no-any-return]


def stepped(prepare: Any, names: tuple[str, ...] = ("price", "age")) -> tuple[RecommendationModule, Tensor]:
    """Return a module after one forward, and its loss; ``prepare(model, dense)`` spoils something first."""

    def rank(comms: Collectives) -> tuple[RecommendationModule, Tensor]:
        model = Model()
        plan = plan_for([TABLE], ShardingType.TABLE_WISE, 1, "reference")
        device = torch.device("cpu")
        model.embeddings.shard(plan=plan, keys={"user": "user"}, collectives=comms, device=device, seed=0)
        dense = torch.ones(3, 2)
        with torch.no_grad():
            prepare(model, dense)
        module = RecommendationModule(model, OptimConfig().to_spec(), dense_names=names)
        sparse = SparseFeatures(("user",), torch.ones(3, dtype=torch.int64), torch.tensor([0, 5, 2]))
        return module, module.training_step(Batch(dense, sparse, torch.ones(3)), 0)

    return run_ranks(1, rank)[0]


def spoil_dense(model: Model, dense: Tensor) -> None:
    dense[1:, 1] = NAN
    spoil_table(model, dense)


def spoil_table(model: Model, dense: Tensor) -> None:
    model.embeddings.engine.local_shards(0)[0][1][5, 0] = INF
    spoil_layer(model, dense)


def spoil_layer(model: Model, dense: Tensor) -> None:
    model.layer.bias.fill_(NAN)


def overflow(model: Model, dense: Tensor) -> None:
    model.layer.weight.fill_(3e38)


CASES = [
    (spoil_dense, "stage data: the dense column 'age' holds NaN in 2 of 3 samples (first: sample 1); check the data"),
    (
        spoil_table,
        "stage lookup: table 'user', feature 'user': 1 of 3 output rows hold inf (first: row 1); "
        f"row 5 of the weights of table 'user' holds inf; {LOWER}",
    ),
    (spoil_layer, f"stage dense forward: the dense parameter 'model.layer.bias' holds NaN; {LOWER}"),
    (
        overflow,
        "stage dense forward: every input, table and parameter is finite, so the dense part has computed a number "
        f"beyond its type; {LOWER}",
    ),
]


@pytest.mark.parametrize(("prepare", "cause"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_the_first_bad_value_in_the_order_of_the_forward_is_named(prepare: Any, cause: str) -> None:
    module, loss = stepped(prepare)
    assert find_cause(module) == cause
    trainer: Any = SimpleNamespace(global_step=41, global_rank=3)
    with pytest.raises(DivergedError) as error:
        LossGuard().on_before_backward(trainer, module, loss)
    assert str(error.value) == f"the training loss of step 42 is not finite on rank 3: {cause}"


def test_columns_without_names_have_numbers() -> None:
    module, _ = stepped(spoil_dense, names=())
    assert find_cause(module).startswith("stage data: the dense column 1 holds NaN")


def test_a_sound_loss_passes_and_nothing_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    module, loss = stepped(lambda model, dense: None)
    monkeypatch.setattr("neo.strategy.divergence.find_cause", lambda module: pytest.fail("searched"))
    LossGuard().on_before_backward(SimpleNamespace(global_step=0, global_rank=0), module, loss)  # type: ignore[arg-type]


def test_on_a_gpu_the_loss_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    module, _ = stepped(spoil_dense)
    on_device: Any = SimpleNamespace(device=torch.device("cuda"), isfinite=lambda: pytest.fail("waited"))
    LossGuard().on_before_backward(SimpleNamespace(global_step=0, global_rank=0), module, on_device)  # type: ignore[arg-type]
