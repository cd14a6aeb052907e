"""Run a collection under a plan, step by step, and hand back what it computed: the sharded half of "sharded == oracle".

Shapes: F features, B samples of the global batch, B_f bags of a feature, N ids, D the width of the result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from neo.checkpoint.compare import table_entries
from neo.checkpoint.manifest import Facts
from neo.checkpoint.store import ModelTables, load_tables, save_checkpoint
from neo.comms.collectives import Collectives
from neo.comms.spec import CommsSpec
from neo.data.batch import SparseFeatures
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingPlan
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.tables.spec import Pooling, TableSpec
from neo.testing.oracle import DenseReference, Floats, Ints, ReferenceInput

Gradient = Floats | Mapping[str, Floats]


@dataclass(frozen=True)
class GlobalStep:
    """One training step.

    Attributes:
        batch: The global batch.
        gradient: Gradient of the global loss with respect to the outputs: side by side ``[B, D]``, or by name.
        splits: Samples of each rank; they add up to B.
        bag_splits: Per feature the bags of each rank, for a variable batch.
    """

    batch: ReferenceInput
    gradient: Gradient
    splits: tuple[int, ...]
    bag_splits: Mapping[str, tuple[int, ...]] | None = None

    def bags_of(self, feature: str, rank: int) -> tuple[int, int]:
        """Return which bags of a feature a rank has."""
        splits = self.splits if self.bag_splits is None else self.bag_splits[feature]
        begin = sum(splits[:rank])
        return begin, begin + splits[rank]

    def ids_of(self, feature: str, rank: int) -> tuple[int, int]:
        """Return which ids of a feature (counted within it) a rank has."""
        begin, end = self.bags_of(feature, rank)
        ends = np.concatenate([[0], np.cumsum(self.batch.lengths_of(feature))])
        return int(ends[begin]), int(ends[end])


@dataclass(frozen=True)
class RunResult:
    """What a run computed.

    Attributes:
        outputs: Per step the outputs of the global batch by name, ``[rows, dim]``.
        weights_gradients: Per step the gradient ``[N]`` of the weights, or None.
        initial: The tables before the first step.
        tables: The tables after the last.
        states: Their optimizer states.
    """

    outputs: list[dict[str, Floats]]
    weights_gradients: list[Floats | None]
    initial: dict[str, Floats]
    tables: dict[str, Floats]
    states: dict[str, dict[str, Floats]]


def part_of(step: GlobalStep, rank: int, weighted: Sequence[bool]) -> tuple[SparseFeatures, Ints]:
    """Return a rank's part of a global batch and the positions of its ids in it."""
    batch = step.batch
    positions, lengths, counts = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)], []
    for key in batch.keys:
        begin, end = step.bags_of(key, rank)
        first, last = step.ids_of(key, rank)
        positions.append(batch.span(key).start + np.arange(first, last))
        lengths.append(batch.lengths_of(key)[begin:end])
        counts.append(end - begin)
    index = np.concatenate(positions).astype(np.int64)
    weights = None
    if batch.weights is not None and any(weighted):
        weights = torch.from_numpy(batch.weights[index].astype(np.float32)).requires_grad_()
    features = SparseFeatures(
        batch.keys,
        torch.from_numpy(np.concatenate(lengths)),
        torch.from_numpy(batch.values[index]),
        weights,
        weighted if weights is not None else None,
        bag_counts=None if step.bag_splits is None else counts,
        batch_size=None if step.bag_splits is None else step.splits[rank],
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
    table_optimizers: Mapping[str, SparseOptimizerSpec] | None = None,
    comms: CommsSpec | None = None,
    semantics: ColumnWiseSemantics = ColumnWiseSemantics.EXACT,
    checkpoint: Path | None = None,
) -> RunResult:
    """Train a collection on this rank's part of every step; the tables' plan keys are their names.

    With ``checkpoint`` (and a ``torch.distributed`` group) the run is saved there in the middle and goes on in another
    collection.
    """
    keys = {table.name: table.name for table in tables}

    def begin() -> EmbeddingBagCollection:
        made = EmbeddingBagCollection(
            tables,
            optimizer=optimizer,
            table_optimizers=table_optimizers,
            variable_batch=any(step.bag_splits is not None for step in steps),
        )
        made.shard(
            plan=plan,
            keys=keys,
            collectives=collectives,
            device=torch.device("cpu"),
            seed=seed,
            comms=comms,
            column_wise_semantics=semantics,
        )
        return made

    collection = begin()
    initial = {table.name: collection.full_weight(table.name).double().numpy() for table in tables}
    outputs: list[dict[str, Floats]] = []
    gradients: list[Floats | None] = []
    for number, step in enumerate(steps):
        if checkpoint is not None and number == len(steps) // 2:
            collection = _through_checkpoint(checkpoint, collection, begin(), plan, semantics, collectives)
        features, index = part_of(step, collectives.rank, weighted)
        found = collection.lookup(features)
        wanted = local_gradients(tables, step, collectives.rank)
        # The loss of a rank is weighted so that the mean over ranks is the global one: a factor W on its gradient.
        torch.autograd.backward(
            list(found.values()), [torch.from_numpy(wanted[name]).float() * collectives.world_size for name in found]
        )
        outputs.append(_concatenate(collectives, {n: part.detach().double().numpy() for n, part in found.items()}))
        gradients.append(_scatter(collectives, features, index, len(step.batch.values)))
    final = {table.name: collection.full_weight(table.name).double().numpy() for table in tables}
    states = {
        table.name: {name: value.double().numpy() for name, value in collection.full_state(table.name).items()}
        for table in tables
    }
    return RunResult(outputs, gradients, initial, final, states)


def _through_checkpoint(
    path: Path,
    before: EmbeddingBagCollection,
    after: EmbeddingBagCollection,
    plan: ShardingPlan,
    semantics: ColumnWiseSemantics,
    collectives: Collectives,
) -> EmbeddingBagCollection:
    """Save one collection and load it into another, whose weights and states are spoiled first."""
    tables = {table.name: table for table in before.tables}
    optimizers = {name: before.optimizer_of(name) for name in tables}
    entries = table_entries(tables, optimizers, plan=plan, semantics=semantics)
    keys = {"": {name: name for name in tables}}
    save_checkpoint(
        path,
        ModelTables({"": before}, keys, entries),
        rest={},
        facts=Facts(step=before.engine.num_steps),
        copies={},
        collectives=collectives,
    )
    for index in range(len(after.tables)):
        for _, weight, states in after.engine.local_shards(index):
            for tensor in (weight, *states.values()):
                tensor.fill_(7.0)
    load_tables(path, ModelTables({"": after}, keys, entries), collectives=collectives)
    return after


def local_gradients(tables: Sequence[TableSpec], step: GlobalStep, rank: int) -> dict[str, Floats]:
    """Return a rank's rows of the gradient of every output."""
    by_name = DenseReference(tables, {}, SparseOptimizerSpec("sgd")).by_name(step.gradient)
    local = {}
    for table in tables:
        for feature in table.feature_names:
            is_sequence = table.pooling is Pooling.NONE
            begin, end = (step.ids_of if is_sequence else step.bags_of)(feature, rank)
            name = table.output_name(feature)
            local[name] = np.ascontiguousarray(by_name[name][begin:end])
    return local


def run_reference(
    tables: Sequence[TableSpec],
    *,
    initial: Mapping[str, Floats],
    optimizer: SparseOptimizerSpec,
    steps: Sequence[GlobalStep],
    column_blocks: Mapping[str, Sequence[tuple[int, int]]],
    table_optimizers: Mapping[str, SparseOptimizerSpec] | None = None,
) -> tuple[RunResult, DenseReference]:
    """Train the dense reference on the same steps from the same initial weights."""
    optimizers = {table.name: optimizer for table in tables} | dict(table_optimizers or {})
    reference = DenseReference(tables, initial, optimizers, column_blocks)
    outputs: list[dict[str, Floats]] = []
    gradients: list[Floats | None] = []
    for step in steps:
        outputs.append(reference.outputs(step.batch))
        wanted = step.batch.weights is not None
        gradients.append(reference.weights_gradient(step.batch, step.gradient) if wanted else None)
        reference.backward(step.batch, step.gradient)
    return RunResult(outputs, gradients, dict(initial), dict(reference.weights), {}), reference


def column_blocks_of(plan: ShardingPlan) -> dict[str, list[tuple[int, int]]]:
    """Return the column ranges of every table that a plan splits by columns (for the ``per_shard`` reference)."""
    blocks = {name: list(table.column_ranges) for name, table in plan.tables.items() if not table.is_replicated}
    return {name: ranges for name, ranges in blocks.items() if len(ranges) > 1}


def _concatenate(collectives: Collectives, rows: dict[str, Floats]) -> dict[str, Floats]:
    parts = collectives.all_gather_object(rows)
    found: list[dict[str, Floats]] = [part for part in parts if isinstance(part, dict)]
    return {name: np.concatenate([part[name] for part in found], axis=0) for name in rows}


def _scatter(collectives: Collectives, features: SparseFeatures, index: Ints, total: int) -> Floats | None:
    own = None if features.weights is None else features.weights.grad
    local = np.zeros(total)
    if own is not None:
        local[index] = own.double().numpy() / collectives.world_size  # undo the factor W of the local loss
    parts = [np.asarray(part) for part in collectives.all_gather_object(local)]
    return None if features.weights is None else np.sum(parts, axis=0)
