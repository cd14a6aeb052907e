"""Run a collection under a plan, step by step, and hand back what it computed: the sharded half of "sharded == oracle".

Shapes: F features, B samples of the global batch, N ids, D the width of the result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from neo.comms.collectives import Collectives
from neo.data.batch import SparseFeatures
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ShardingPlan
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.tables.spec import TableSpec
from neo.testing.oracle import DenseReference, Floats, ReferenceInput


@dataclass(frozen=True)
class GlobalStep:
    """One training step.

    Attributes:
        batch: The global batch.
        gradient: ``[B, D]`` gradient of the global loss with respect to the pooled outputs.
        splits: Samples of each rank; they add up to B.
    """

    batch: ReferenceInput
    gradient: Floats
    splits: tuple[int, ...]


@dataclass(frozen=True)
class RunResult:
    """What a run computed: outputs ``[B, D]`` and weights gradients ``[N]`` per step, final tables and states."""

    outputs: list[Floats]
    weights_gradients: list[Floats | None]
    initial: dict[str, Floats]
    tables: dict[str, Floats]
    states: dict[str, dict[str, Floats]]


def part_of(batch: ReferenceInput, begin: int, end: int, weighted: Sequence[bool]) -> tuple[SparseFeatures, np.ndarray]:
    """Return the samples ``[begin, end)`` of a global batch and the positions of their ids in it."""
    starts = np.concatenate([[0], np.cumsum(batch.lengths)])[:-1].reshape(batch.lengths.shape)
    positions = [
        np.arange(int(starts[row, sample]), int(starts[row, sample] + batch.lengths[row, sample]))
        for row in range(len(batch.keys))
        for sample in range(begin, end)
    ]
    index = np.concatenate([np.zeros(0, dtype=np.int64), *positions]).astype(np.int64)
    weights = None
    if batch.weights is not None and any(weighted):
        weights = torch.from_numpy(batch.weights[index].astype(np.float32)).requires_grad_()
    features = SparseFeatures(
        batch.keys,
        torch.from_numpy(np.ascontiguousarray(batch.lengths[:, begin:end]).reshape(-1)),
        torch.from_numpy(batch.values[index]),
        weights,
        weighted if weights is not None else None,
    )
    return features, index


def run_sharded(
    collectives: Collectives,
    tables: Sequence[TableSpec],
    *,
    plan: ShardingPlan,
    optimizer: SparseOptimizerSpec,
    steps: Sequence[GlobalStep],
    weighted: Sequence[bool],
    seed: int = 0,
) -> RunResult:
    """Train a collection on this rank's part of every step; the tables' plan keys are their names."""
    collection = EmbeddingBagCollection(tables, optimizer=optimizer)
    keys = {table.name: table.name for table in tables}
    collection.shard(plan=plan, keys=keys, collectives=collectives, device=torch.device("cpu"), seed=seed)
    initial = {table.name: collection.full_weight(table.name).double().numpy() for table in tables}
    outputs: list[Floats] = []
    gradients: list[Floats | None] = []
    for step in steps:
        begin = sum(step.splits[: collectives.rank])
        end = begin + step.splits[collectives.rank]
        features, index = part_of(step.batch, begin, end, weighted)
        pooled = collection(features)
        # The loss of a rank is weighted so that the mean over ranks is the global one: a factor W on its gradient.
        local = torch.from_numpy(step.gradient[begin:end].astype(np.float32)) * collectives.world_size
        pooled.backward(local)
        outputs.append(_concatenate(collectives, pooled.detach().double().numpy()))
        gradients.append(_scatter(collectives, features, index, len(step.batch.values)))
    final = {table.name: collection.full_weight(table.name).double().numpy() for table in tables}
    states = {
        table.name: {name: value.double().numpy() for name, value in collection.full_state(table.name).items()}
        for table in tables
    }
    return RunResult(outputs, gradients, initial, final, states)


def run_reference(
    tables: Sequence[TableSpec],
    *,
    initial: Mapping[str, Floats],
    optimizer: SparseOptimizerSpec,
    steps: Sequence[GlobalStep],
    column_blocks: Mapping[str, Sequence[tuple[int, int]]],
) -> tuple[RunResult, DenseReference]:
    """Train the dense reference on the same steps from the same initial weights."""
    reference = DenseReference(tables, initial, optimizer, column_blocks)
    outputs: list[Floats] = []
    gradients: list[Floats | None] = []
    for step in steps:
        outputs.append(reference.forward(step.batch))
        wanted = step.batch.weights is not None
        gradients.append(reference.weights_gradient(step.batch, step.gradient) if wanted else None)
        reference.backward(step.batch, step.gradient)
    return RunResult(outputs, gradients, dict(initial), dict(reference.weights), {}), reference


def column_blocks_of(plan: ShardingPlan) -> dict[str, list[tuple[int, int]]]:
    """Return the column ranges of every table that a plan splits by columns (for the ``per_shard`` reference)."""
    blocks = {
        name: sorted({(shard.column_begin, shard.column_end) for shard in table.shards if shard.num_columns})
        for name, table in plan.tables.items()
    }
    return {name: ranges for name, ranges in blocks.items() if len(ranges) > 1}


def _concatenate(collectives: Collectives, rows: Floats) -> Floats:
    parts = [np.asarray(part) for part in collectives.all_gather_object(rows)]
    return np.concatenate(parts, axis=0)


def _scatter(collectives: Collectives, features: SparseFeatures, index: np.ndarray, total: int) -> Floats | None:
    own = None if features.weights is None else features.weights.grad
    local = np.zeros(total)
    if own is not None:
        local[index] = own.double().numpy() / collectives.world_size  # undo the factor W of the local loss
    parts = [np.asarray(part) for part in collectives.all_gather_object(local)]
    return None if features.weights is None else np.sum(parts, axis=0)
