"""Sparse optimizers as updates of unique rows: one class each, used by the reference backend and replicas.

Shapes: U unique rows, D columns. States are float32 whatever the weights are.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from neo.optim.spec import SPARSE_OPTIMIZERS, SparseOptimizerSpec

State = dict[str, Tensor]


class RowOptimizer(ABC):
    """Updates the rows that a batch touched; every other row stays as it is.

    Args:
        spec: Hyper-parameters; the learning rate is passed to each update, since schedules change it.
    """

    def __init__(self, spec: SparseOptimizerSpec) -> None:
        self.spec = spec

    @abstractmethod
    def create_state(self, num_rows: int, num_columns: int, device: torch.device) -> State:
        """Return the state before the first step, by name."""

    @abstractmethod
    def update(
        self,
        weight: Tensor,
        state: State,
        rows: Tensor,
        gradient: Tensor,
        lr: float,
        step: int,
        mean_squares: Tensor | None = None,
    ) -> None:
        """Apply one exact step in place.

        Args:
            weight: ``[rows, D]``.
            state: As ``create_state`` made it.
            rows: ``[U]`` int64, each row at most once.
            gradient: ``[U, D]`` float32, already summed over all duplicates of the global batch.
            lr: Learning rate of this step.
            step: Number of this step, from 1.
            mean_squares: ``[U]`` mean of the squared gradient over the columns of the whole table, where ``weight`` is
                one of its column shards and the optimizer is row-wise; None takes the mean over D.
        """


class SGD(RowOptimizer):
    """``w -= lr * g``."""

    def create_state(self, num_rows: int, num_columns: int, device: torch.device) -> State:
        """Return no state."""
        return {}

    def update(
        self,
        weight: Tensor,
        state: State,
        rows: Tensor,
        gradient: Tensor,
        lr: float,
        step: int,
        mean_squares: Tensor | None = None,
    ) -> None:
        """Apply one step; see the base class."""
        weight.index_add_(0, rows, gradient, alpha=-lr)


class AdaGrad(RowOptimizer):
    """``s += g^2; w -= lr * g / (sqrt(s) + eps)``, element by element."""

    def create_state(self, num_rows: int, num_columns: int, device: torch.device) -> State:
        """Return ``sum`` ``[rows, D]``."""
        return {"sum": torch.full((num_rows, num_columns), self.spec.initial_accumulator, device=device)}

    def update(
        self,
        weight: Tensor,
        state: State,
        rows: Tensor,
        gradient: Tensor,
        lr: float,
        step: int,
        mean_squares: Tensor | None = None,
    ) -> None:
        """Apply one step; see the base class."""
        _accumulate(weight, state["sum"], rows, gradient, gradient.square(), lr, self.spec.eps)


class RowwiseAdaGrad(RowOptimizer):
    """AdaGrad with one accumulator per row: ``s += mean(g^2)``.

    Source: the row-wise AdaGrad of DLRM training (arXiv 2104.05158).
    """

    def create_state(self, num_rows: int, num_columns: int, device: torch.device) -> State:
        """Return ``sum`` ``[rows]``."""
        return {"sum": torch.full((num_rows,), self.spec.initial_accumulator, device=device)}

    def update(
        self,
        weight: Tensor,
        state: State,
        rows: Tensor,
        gradient: Tensor,
        lr: float,
        step: int,
        mean_squares: Tensor | None = None,
    ) -> None:
        """Apply one step; see the base class."""
        squares = (gradient.square().mean(dim=1) if mean_squares is None else mean_squares).unsqueeze(1)
        _accumulate(weight, state["sum"].unsqueeze(1), rows, gradient, squares, lr, self.spec.eps)


class Adam(RowOptimizer):
    """Adam on the touched rows, with the bias correction of the run's step count."""

    def create_state(self, num_rows: int, num_columns: int, device: torch.device) -> State:
        """Return ``exp_avg`` and ``exp_avg_sq`` ``[rows, D]``."""
        return {name: torch.zeros(num_rows, num_columns, device=device) for name in ("exp_avg", "exp_avg_sq")}

    def update(
        self,
        weight: Tensor,
        state: State,
        rows: Tensor,
        gradient: Tensor,
        lr: float,
        step: int,
        mean_squares: Tensor | None = None,
    ) -> None:
        """Apply one step; see the base class."""
        beta1, beta2 = self.spec.beta1, self.spec.beta2
        first = state["exp_avg"][rows].mul_(beta1).add_(gradient, alpha=1 - beta1)
        second = state["exp_avg_sq"][rows].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        state["exp_avg"][rows] = first
        state["exp_avg_sq"][rows] = second
        denominator = (second / (1 - beta2**step)).sqrt_().add_(self.spec.eps)
        weight.index_add_(0, rows, first / denominator, alpha=-lr / (1 - beta1**step))


def _accumulate(
    weight: Tensor, accumulator: Tensor, rows: Tensor, gradient: Tensor, squares: Tensor, lr: float, eps: float
) -> None:
    updated = accumulator[rows] + squares
    accumulator[rows] = updated
    # A row whose gradients cancel to zero does not move, also with eps = 0 (0 / 0 would be NaN).
    step = torch.where(updated > 0, gradient / (updated.sqrt() + eps), torch.zeros_like(gradient))
    weight.index_add_(0, rows, step, alpha=-lr)


def create_row_optimizer(spec: SparseOptimizerSpec) -> RowOptimizer:
    """Return the optimizer that ``spec`` names."""
    optimizer = SPARSE_OPTIMIZERS.get(spec.name)(spec)
    assert isinstance(optimizer, RowOptimizer)
    return optimizer
