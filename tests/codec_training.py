"""A small model over sharded tables whose exchange uses codecs, for tests on threads and on processes."""

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
from placements import plan_for

TABLES = (
    TableSpec("user", 40, 20, ("user",)),
    TableSpec("items", 60, 12, ("seen", "bought"), Pooling.MEAN),
    TableSpec("words", 30, 8, ("words",)),
)
FEATURES = ("user", "seen", "bought", "words")
KINDS = (ShardingType.ROW_WISE, ShardingType.TABLE_WISE, ShardingType.ROW_WISE)
STEPS, BATCH, WORLD_SIZE = 100, 64, 2
SHARE = BATCH // WORLD_SIZE


def batch(step: int) -> tuple[Tensor, list[Tensor], Tensor]:
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
    lengths, ids, labels = batch(step)
    own = []
    for index, values in enumerate(ids):
        ends = lengths[index].cumsum(0)
        own.append(values[int(ends[begin - 1]) if begin else 0 : int(ends[end - 1])])
    return SparseFeatures(FEATURES, lengths[:, begin:end].flatten(), torch.cat(own)), labels[begin:end]


def collection_of(comms: Collectives, codecs: tuple[str, str]) -> EmbeddingBagCollection:
    """Return the sharded tables; ``codecs`` are those of the forward and of the backward."""
    collection = EmbeddingBagCollection(TABLES, optimizer=SparseOptimizerSpec("sgd", lr=1.0))
    collection.shard(
        plan=plan_for(TABLES, KINDS, WORLD_SIZE),
        keys={table.name: table.name for table in TABLES},
        collectives=comms,
        device=torch.device("cpu"),
        seed=0,
        comms=CommsSpec(forward=codecs[0], backward=codecs[1]),
    )
    return collection


def own_part(comms: Collectives, step: int) -> tuple[SparseFeatures, Tensor]:
    """Return this rank's half of a global batch, and its labels."""
    return _part(step, comms.rank * SHARE, (comms.rank + 1) * SHARE)


def train(comms: Collectives, codecs: tuple[str, str], steps: int = STEPS) -> list[float]:
    """Return the loss of every global batch; a linear layer on the pooled rows trains along, equal on all ranks."""
    collection = collection_of(comms, codecs)
    layer = torch.randn(sum(collection.output_dims), generator=torch.Generator().manual_seed(1)).requires_grad_()
    losses = []
    for step in range(steps):
        sparse, labels = own_part(comms, step % 20)
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


def bytes_of_a_step(comms: Collectives, codecs: tuple[str, str]) -> tuple[int, int]:
    """Return the bytes that this rank sends to the other in a forward, ids included, and in a backward."""
    collection, other = collection_of(comms, codecs), 1 - comms.rank
    before = comms.traffic.sent_bytes[other]
    pooled = collection(own_part(comms, 0)[0])
    between = comms.traffic.sent_bytes[other]
    pooled.sum().backward()
    return between - before, comms.traffic.sent_bytes[other] - between
