"""How many bytes the embedding exchange of a training step sends, within nodes and between them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from neo.comms.collectives import Traffic


@dataclass(frozen=True)
class TrafficBytes:
    """Bytes that one rank, or all of them, sent for the tables; the dense part's all-reduce is not among them.

    Attributes:
        within_nodes: To other ranks of the same node, in all-to-alls.
        between_nodes: To ranks of other nodes, in all-to-alls.
        all_reduced: Sizes of the tensors that were all-reduced: gradients of replicated tables.
    """

    within_nodes: int = 0
    between_nodes: int = 0
    all_reduced: int = 0

    @classmethod
    def of(cls, traffic: Traffic, *, rank: int, local_world_size: int) -> "TrafficBytes":
        """Sort what ``rank`` has sent by the link that it took."""
        return cls(
            within_nodes=traffic.within_node(rank, local_world_size),
            between_nodes=traffic.between_nodes(rank, local_world_size),
            all_reduced=traffic.reduced_bytes,
        )

    def __add__(self, other: "TrafficBytes") -> "TrafficBytes":
        return TrafficBytes(
            self.within_nodes + other.within_nodes,
            self.between_nodes + other.between_nodes,
            self.all_reduced + other.all_reduced,
        )

    def __sub__(self, other: "TrafficBytes") -> "TrafficBytes":
        return TrafficBytes(
            self.within_nodes - other.within_nodes,
            self.between_nodes - other.between_nodes,
            self.all_reduced - other.all_reduced,
        )


@dataclass(frozen=True)
class TrafficPerStep:
    """Means over the training steps of a run, summed over the ranks.

    Attributes:
        within_nodes: Bytes sent to other ranks of the same node.
        between_nodes: Bytes sent to ranks of other nodes.
        all_reduced: Sizes of the tensors that were all-reduced.
    """

    within_nodes: float
    between_nodes: float
    all_reduced: float

    @classmethod
    def of(cls, ranks: Sequence[TrafficBytes], steps: int) -> "TrafficPerStep | None":
        """Divide what all ranks sent in their training steps; None without a step."""
        if steps == 0:
            return None
        total = sum(ranks, TrafficBytes())
        return cls(total.within_nodes / steps, total.between_nodes / steps, total.all_reduced / steps)


class TrafficMeter(Callback):
    """Add up what this rank sends in training steps; what a validation sends is left out.

    Args:
        sent: Returns what this rank has sent so far.

    Attributes:
        total: Of all training steps.
        steps: How many there were.
    """

    def __init__(self, sent: Callable[[], TrafficBytes]) -> None:
        self._sent = sent
        self._before = TrafficBytes()
        self.total = TrafficBytes()
        self.steps = 0

    @override
    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Note what was sent before the step."""
        self._before = self._sent()

    @override
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Add what the step has sent."""
        self.total += self._sent() - self._before
        self.steps += 1
