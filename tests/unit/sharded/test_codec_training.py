"""A hundred steps of SGD whose pooled vectors and gradients travel in fewer bytes: the loss stays by that of fp32."""

from functools import cache

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from neo.comms.collectives import Collectives
from neo.comms.spec import CommsSpec
from neo.data.batch import SparseFeatures
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ShardingType
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.tables.spec import Pooling, TableSpec
from neo.testing.fake_collectives import run_ranks
from placements import plan_for

TABLES = (
    TableSpec("user", 40, 20, ("user",)),
    TableSpec("items", 60, 12, ("seen", "bought"), Pooling.MEAN),
    TableSpec("words", 30, 8, ("words",)),
)
FEATURES = ("user", "seen", "bought", "words")
KINDS = (ShardingType.ROW_WISE, ShardingType.TABLE_WISE, ShardingType.ROW_WISE)
STEPS, BATCH, WORLD_SIZE = 100, 64, 2


def _batch(step: int) -> tuple[Tensor, list[Tensor], Tensor]:
    """Return lengths ``[F, B]``, ids per feature, and labels ``[B]`` that a score of every row decides."""
    generator = torch.Generator().manual_seed(step)
    lengths = torch.randint(0, 4, (len(FEATURES), BATCH), generator=generator)
    rows = {feature: table.num_embeddings for table in TABLES for feature in table.feature_names}
    ids = [
        torch.randint(0, rows[feature], (int(lengths[index].sum()),), generator=generator)
        for index, feature in enumerate(FEATURES)
    ]
    score = torch.zeros(BATCH)
    for index, values in enumerate(ids):
        samples = torch.repeat_interleave(torch.arange(BATCH), lengths[index])
        score.index_add_(0, samples, torch.sin(values * 7.0 + index))
    return lengths, ids, (score + torch.randn(BATCH, generator=generator) > 0).float()


def _part(step: int, begin: int, end: int) -> tuple[SparseFeatures, Tensor]:
    lengths, ids, labels = _batch(step)
    own = []
    for index, values in enumerate(ids):
        ends = lengths[index].cumsum(0)
        own.append(values[int(ends[begin - 1]) if begin else 0 : int(ends[end - 1])])
    return SparseFeatures(FEATURES, lengths[:, begin:end].flatten(), torch.cat(own)), labels[begin:end]


def _train(comms: Collectives, codecs: tuple[str, str]) -> list[float]:
    """Return the loss of every global batch; a linear layer on the pooled rows trains along, equal on all ranks."""
    collection = EmbeddingBagCollection(TABLES, optimizer=SparseOptimizerSpec("sgd", lr=1.0))
    keys, device = {table.name: table.name for table in TABLES}, torch.device("cpu")
    plan = plan_for(TABLES, KINDS, WORLD_SIZE)
    spec = CommsSpec(forward=codecs[0], backward=codecs[1])
    collection.shard(plan=plan, keys=keys, collectives=comms, device=device, seed=0, comms=spec)
    layer = torch.randn(sum(collection.output_dims), generator=torch.Generator().manual_seed(1)).requires_grad_()
    losses = []
    share = BATCH // WORLD_SIZE
    for step in range(STEPS):
        sparse, labels = _part(step % 20, comms.rank * share, (comms.rank + 1) * share)
        loss = functional.binary_cross_entropy_with_logits(collection(sparse) @ layer, labels)
        (gradient,) = torch.autograd.grad(loss, layer, retain_graph=True)
        loss.backward()
        comms.all_reduce(gradient)
        with torch.no_grad():
            layer -= 0.1 * gradient / WORLD_SIZE
        layer.grad = None
        total = loss.detach().clone()
        comms.all_reduce(total)
        losses.append(float(total) / WORLD_SIZE)
    return losses


@cache
def _fp32() -> list[float]:
    return run_ranks(WORLD_SIZE, lambda comms: _train(comms, ("fp32", "fp32")))[0]


@pytest.mark.parametrize(
    ("codecs", "gap"),
    [(("fp16", "bf16"), 5e-4), (("fp16", "fp16"), 2e-4), (("bf16", "bf16"), 1e-3)],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_a_hundred_steps_stay_within_the_stated_gap(codecs: tuple[str, str], gap: float) -> None:
    expected, found = _fp32(), run_ranks(WORLD_SIZE, lambda comms: _train(comms, codecs))[0]
    assert expected[0] - expected[-1] > 0.2, "the model learns, so that a gap has room to grow"
    differences = [abs(a - b) for a, b in zip(expected, found, strict=True)]
    assert 0.0 < max(differences) <= gap
