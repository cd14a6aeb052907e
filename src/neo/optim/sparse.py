"""Sparse optimizers as updates of unique rows: one class each, used by the reference backend.

Shapes: U unique rows, D columns. Arithmetic and states are float32 whatever the weights are.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from neo.optim.rounding import RandomBits, round_at_random
from neo.optim.spec import SPARSE_OPTIMIZERS, SparseOptimizerSpec, WeightDecayMode

State = dict[str, Tensor]

_SMALLEST_EPS = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class RowStep:
    """One step of the touched rows.

    Attributes:
        rows: ``[U]`` int64, each row at most once.
        gradient: ``[U, D]`` float32, already summed over all duplicates of the global batch, L2 decay included.
        lr: Learning rate of this step.
        number: Number of this step, from 1.
        mean_squares: ``[U]`` mean of the squared gradient over the columns of the whole table, where the rows are those
            of a column shard and the optimizer is row-wise; None takes the mean over D.
    """

    rows: Tensor
    gradient: Tensor
    lr: float
    number: int
    mean_squares: Tensor | None = None


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
    def move(self, values: Tensor, state: State, step: RowStep) -> None:
        """Apply one step to ``values`` ``[U, D]`` float32, the touched rows, and to their state."""

    @property
    def _has_l2(self) -> bool:
        return self.spec.weight_decay > 0 and self.spec.weight_decay_mode is WeightDecayMode.L2

    def add_l2(self, weight: Tensor, rows: Tensor, gradient: Tensor) -> Tensor:
        """Return ``gradient`` ``[U, D]`` with L2 weight decay added; the same tensor if there is none.

        Args:
            weight: ``[rows, D]``.
            rows: ``[U]`` int64.
            gradient: ``[U, D]`` float32, merged.
        """
        if not self._has_l2:
            return gradient
        return gradient.add(weight.index_select(0, rows).float(), alpha=self.spec.weight_decay)

    def update(
        self,
        weight: Tensor,
        state: State,
        rows: Tensor,
        gradient: Tensor,
        lr: float,
        step: int,
        mean_squares: Tensor | None = None,
        *,
        random_bits: RandomBits | None = None,
        has_l2: bool = True,
    ) -> None:
        """Apply one exact step in place.

        Args:
            weight: ``[rows, D]`` float32, float16 or bfloat16.
            state: As ``create_state`` made it.
            rows: ``[U]`` int64, each row at most once.
            gradient: ``[U, D]`` float32, already summed over all duplicates of the global batch.
            lr: Learning rate of this step.
            step: Number of this step, from 1.
            mean_squares: ``[U]`` mean of the squared gradient over the columns of the whole table, where ``weight`` is
                one of its column shards and the optimizer is row-wise; None takes the mean over D.
            random_bits: Decides how 16-bit weights round; None rounds to the nearest.
            has_l2: Whether ``gradient`` went through ``add_l2``; else it happens here, in the memory of ``gradient``.
        """
        values = read_rows(weight, rows).float()
        if not has_l2 and self._has_l2:
            gradient.add_(values, alpha=self.spec.weight_decay)
        if self.spec.weight_decay and self.spec.weight_decay_mode is WeightDecayMode.DECOUPLED:
            values.add_(values, alpha=-lr * self.spec.weight_decay)
        self.move(values, state, RowStep(rows, gradient, lr, step, mean_squares))
        if random_bits is not None and weight.dtype is not torch.float32:
            values = round_at_random(values, random_bits, weight.dtype)
        _write_rows(weight, rows, values.to(weight.dtype))


class SGD(RowOptimizer):
    """``w -= lr * g``."""

    def create_state(self, num_rows: int, num_columns: int, device: torch.device) -> State:
        """Return no state."""
        return {}

    def move(self, values: Tensor, state: State, step: RowStep) -> None:
        """Apply one step; see the base class."""
        values.add_(step.gradient, alpha=-step.lr)


class AdaGrad(RowOptimizer):
    """``s += g^2; w -= lr * g / (sqrt(s) + eps)``, element by element."""

    def create_state(self, num_rows: int, num_columns: int, device: torch.device) -> State:
        """Return ``sum`` ``[rows, D]``."""
        return {
            "sum": torch.full(
                (num_rows, num_columns), self.spec.initial_accumulator, dtype=torch.float32, device=device
            )
        }

    def move(self, values: Tensor, state: State, step: RowStep) -> None:
        """Apply one step; see the base class."""
        total = state["sum"].index_select(0, step.rows).addcmul_(step.gradient, step.gradient)
        _write_rows(state["sum"], step.rows, total)
        values.addcdiv_(step.gradient, _root(total, self.spec.eps), value=-step.lr)


class RowwiseAdaGrad(RowOptimizer):
    """AdaGrad with one accumulator per row: ``s += mean(g^2)``.

    Source: the row-wise AdaGrad of DLRM training (arXiv 2104.05158).
    """

    def create_state(self, num_rows: int, num_columns: int, device: torch.device) -> State:
        """Return ``sum`` ``[rows]``."""
        return {"sum": torch.full((num_rows,), self.spec.initial_accumulator, dtype=torch.float32, device=device)}

    def move(self, values: Tensor, state: State, step: RowStep) -> None:
        """Apply one step; see the base class."""
        total = state["sum"].index_select(0, step.rows).add_(_mean_squares(step.gradient, step.mean_squares))
        _write_rows(state["sum"], step.rows, total)
        values.addcmul_(step.gradient, _root(total, self.spec.eps).reciprocal_().unsqueeze(1), value=-step.lr)


class Adam(RowOptimizer):
    """Adam on the touched rows, with the bias correction of the run's step count."""

    def create_state(self, num_rows: int, num_columns: int, device: torch.device) -> State:
        """Return ``exp_avg`` and ``exp_avg_sq`` ``[rows, D]``."""
        return {
            name: torch.zeros(num_rows, num_columns, dtype=torch.float32, device=device)
            for name in ("exp_avg", "exp_avg_sq")
        }

    def move(self, values: Tensor, state: State, step: RowStep) -> None:
        """Apply one step; see the base class."""
        beta1, beta2 = self.spec.beta1, self.spec.beta2
        first = _moved_average(state["exp_avg"], step.rows, step.gradient, beta1)
        second = (
            state["exp_avg_sq"]
            .index_select(0, step.rows)
            .mul_(beta2)
            .addcmul_(step.gradient, step.gradient, value=1 - beta2)
        )
        _write_rows(state["exp_avg_sq"], step.rows, second)
        scale = math.sqrt(1 - beta2**step.number)  # of the root, moved over to the other operands: one pass less
        values.addcdiv_(first, _root(second, self.spec.eps * scale), value=-step.lr * scale / (1 - beta1**step.number))


class PartialRowwiseAdam(RowOptimizer):
    """Adam with one second moment per row, that of the mean of the squared gradient."""

    def create_state(self, num_rows: int, num_columns: int, device: torch.device) -> State:
        """Return ``exp_avg`` ``[rows, D]`` and ``exp_avg_sq`` ``[rows]``."""
        return {
            "exp_avg": torch.zeros(num_rows, num_columns, dtype=torch.float32, device=device),
            "exp_avg_sq": torch.zeros(num_rows, dtype=torch.float32, device=device),
        }

    def move(self, values: Tensor, state: State, step: RowStep) -> None:
        """Apply one step; see the base class."""
        beta1, beta2 = self.spec.beta1, self.spec.beta2
        first = _moved_average(state["exp_avg"], step.rows, step.gradient, beta1)
        second = _moved_average(state["exp_avg_sq"], step.rows, _mean_squares(step.gradient, step.mean_squares), beta2)
        scale = math.sqrt(1 - beta2**step.number)
        factors = _root(second, self.spec.eps * scale).reciprocal_().unsqueeze(1)
        values.addcmul_(first, factors, value=-step.lr * scale / (1 - beta1**step.number))


def _mean_squares(gradient: Tensor, given: Tensor | None) -> Tensor:
    return gradient.square().mean(dim=1) if given is None else given


def _moved_average(average: Tensor, rows: Tensor, values: Tensor, decay: float) -> Tensor:
    moved = average.index_select(0, rows).lerp_(values, 1 - decay)
    _write_rows(average, rows, moved)
    return moved


def _root(second_moment: Tensor, eps: float) -> Tensor:
    """Return ``sqrt(second_moment) + eps``, in the memory of ``second_moment``."""
    root = second_moment.sqrt_()
    if eps < _SMALLEST_EPS:
        # What has seen only zeros does not move, also without an eps (0 / 0 would be NaN).
        root.masked_fill_(root == 0, torch.inf)
    return root.add_(eps)


def read_rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """Return ``matrix[rows]``, ``[U, D]`` of the same type."""
    if not _is_even(matrix):
        return matrix.index_select(0, rows)
    return matrix.view(torch.complex128).index_select(0, rows).view(matrix.dtype)


def _write_rows(target: Tensor, rows: Tensor, values: Tensor) -> None:
    """Set ``target[rows]`` to ``values``, of the same type and in one piece of memory."""
    if _is_even(target):
        target, values = target.view(torch.complex128), values.view(torch.complex128)
    target.index_copy_(0, rows, values)


def _is_even(matrix: Tensor) -> bool:
    """Return whether rows are whole 16-byte elements: a CPU's copy costs by the element, so few and large ones win."""
    if matrix.device.type != "cpu" or matrix.dim() != 2 or not matrix.numel() or not matrix.is_contiguous():
        return False
    return not matrix.shape[1] * matrix.element_size() % 16 and not matrix.data_ptr() % 16


def create_row_optimizer(spec: SparseOptimizerSpec) -> RowOptimizer:
    """Return the optimizer that ``spec`` names."""
    optimizer = SPARSE_OPTIMIZERS.get(spec.name)(spec)
    assert isinstance(optimizer, RowOptimizer)
    return optimizer
