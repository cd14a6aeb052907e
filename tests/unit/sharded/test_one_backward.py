"""One forward, one backward, one exact step: everything else is refused, and what asks for no gradient is free."""

from collections.abc import Callable

import pytest
import torch

from neo.comms.collectives import Collectives
from neo.data.batch import SparseFeatures
from neo.errors import UnsupportedError
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ShardingType
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.tables.spec import TableSpec
from neo.testing.fake_collectives import run_ranks
from placements import PLACEMENTS, plan_for

TABLE = TableSpec("t", 6, 4, ("f",))
every_placement = pytest.mark.parametrize("kind", PLACEMENTS)


def batch(row: int) -> SparseFeatures:
    return SparseFeatures(["f"], torch.tensor([1]), torch.tensor([row]))


def on_two_ranks(
    kind: ShardingType, body: Callable[[EmbeddingBagCollection], str], kernel: str = "reference"
) -> list[str]:
    """Run ``body`` with a fresh collection on each of two ranks."""

    def rank(comms: Collectives) -> str:
        collection = EmbeddingBagCollection([TABLE], optimizer=SparseOptimizerSpec("sgd", lr=1.0))
        plan = plan_for([TABLE], kind, 2, kernel)
        collection.shard(plan=plan, keys={"t": "t"}, collectives=comms, device=torch.device("cpu"), seed=0)
        return body(collection)

    return run_ranks(2, rank)


@every_placement
def test_two_forwards_before_one_backward_are_refused_before_any_weight_changes(kind: ShardingType) -> None:
    def body(collection: EmbeddingBagCollection) -> str:
        before = collection.full_weight("t")
        loss = collection(batch(1)).sum() + collection(batch(2)).sum()
        with pytest.raises(UnsupportedError) as caught:
            loss.backward()
        assert torch.equal(before, collection.full_weight("t"))
        return str(caught.value)

    for text in on_two_ranks(kind, body):
        assert text == (
            "an EmbeddingBagCollection was called again before the backward of its last forward, which would give two "
            "optimizer steps where one is due; join both inputs into one batch, and run a forward whose gradient is "
            "not wanted under torch.no_grad()"
        )


@every_placement
def test_a_second_backward_is_refused(kind: ShardingType) -> None:
    def body(collection: EmbeddingBagCollection) -> str:
        loss = collection(batch(1)).sum()
        loss.backward(retain_graph=True)
        after = collection.full_weight("t")
        with pytest.raises(UnsupportedError) as caught:
            loss.backward()
        assert torch.equal(after, collection.full_weight("t"))
        return str(caught.value)

    for text in on_two_ranks(kind, body):
        assert text == (
            "this forward of the EmbeddingBagCollection had its backward already, and its tables their step; call "
            "backward once (without retain_graph=True)"
        )


@pytest.mark.parametrize("kernel", ["reference", "fbgemm"])
@every_placement
def test_forwards_without_a_gradient_are_free(kind: ShardingType, kernel: str) -> None:
    def body(collection: EmbeddingBagCollection) -> str:
        start = collection.full_weight("t")
        collection(batch(0))  # dropped: it never gets a backward
        pooled = collection(batch(1))
        with torch.no_grad():
            kept = collection(batch(1))
        with torch.inference_mode():
            inferred = collection(batch(1))
        pooled.sum().backward()
        assert torch.equal(kept, pooled)
        assert torch.equal(inferred, pooled)
        changed = (collection.full_weight("t") - start).abs().sum(dim=1).nonzero().flatten().tolist()
        return str(changed)

    assert on_two_ranks(kind, body, kernel) == ["[1]", "[1]"]
