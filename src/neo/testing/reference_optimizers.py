"""The sparse optimizers in float64 NumPy, written independently of the ones that train.

For oracles and suites: shares no code with ``neo.ops`` or ``neo.optim.sparse``, so that a mistake in one of them
shows. Shapes: U touched rows, D columns of the whole table.
"""

import numpy as np
from numpy.typing import NDArray

from neo.optim.spec import SparseOptimizerSpec, WeightDecayMode

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class ReferenceOptimizer:
    """One table's optimizer.

    Args:
        spec: Hyper-parameters.
        num_rows: Rows of the table.
        num_columns: Columns of the table.

    Attributes:
        lr: Learning rate of the next step; starts as ``spec.lr``, and a schedule may change it.
        states: State by name, as the trained optimizers call it: ``sum`` or ``exp_avg`` and ``exp_avg_sq``,
            ``[rows, D]``, or ``[rows]`` where the optimizer keeps one value per row.

    Raises:
        NotImplementedError: The optimizer's formula is not written here.
    """

    def __init__(self, spec: SparseOptimizerSpec, num_rows: int, num_columns: int) -> None:
        self.spec = spec
        self.lr = spec.lr
        shape, per_row = (num_rows, num_columns), (num_rows,)
        self.states: dict[str, Floats]
        match spec.name:
            case "sgd":
                self.states = {}
            case "adagrad":
                self.states = {"sum": np.full(shape, spec.initial_accumulator, dtype=np.float64)}
            case "rowwise_adagrad":
                self.states = {"sum": np.full(per_row, spec.initial_accumulator, dtype=np.float64)}
            case "adam":
                self.states = {"exp_avg": np.zeros(shape), "exp_avg_sq": np.zeros(shape)}
            case "partial_rowwise_adam":
                self.states = {"exp_avg": np.zeros(shape), "exp_avg_sq": np.zeros(per_row)}
            case name:
                raise NotImplementedError(f"the reference does not know the optimizer '{name}'")

    def step(self, weight: Floats, rows: Ints, gradient: Floats, step: int) -> None:
        """Apply one step in place.

        Args:
            weight: ``[rows, D]``.
            rows: ``[U]`` the touched rows, each once.
            gradient: ``[U, D]``, summed over the duplicates of the global batch.
            step: Number of this step, from 1.
        """
        spec, before = self.spec, weight[rows]
        if spec.weight_decay and spec.weight_decay_mode == WeightDecayMode.L2:
            gradient = gradient + spec.weight_decay * before
        after = before - self.lr * self._direction(rows, gradient, step)
        if spec.weight_decay and spec.weight_decay_mode == WeightDecayMode.DECOUPLED:
            after -= self.lr * spec.weight_decay * before
        weight[rows] = after

    def _direction(self, rows: Ints, gradient: Floats, step: int) -> Floats:
        """Return what the learning rate multiplies, and move the state."""
        spec, states = self.spec, self.states
        if spec.name == "sgd":
            return gradient
        squares = gradient**2
        if spec.is_rowwise:
            squares = squares.mean(axis=1)
        if "sum" in states:
            states["sum"][rows] += squares
            numerator, second = gradient, states["sum"][rows]
        else:
            states["exp_avg"][rows] = spec.beta1 * states["exp_avg"][rows] + (1 - spec.beta1) * gradient
            states["exp_avg_sq"][rows] = spec.beta2 * states["exp_avg_sq"][rows] + (1 - spec.beta2) * squares
            numerator = states["exp_avg"][rows] / (1 - spec.beta1**step)
            second = states["exp_avg_sq"][rows] / (1 - spec.beta2**step)
        if spec.is_rowwise:
            second = second[:, None]
        root = np.broadcast_to(np.sqrt(second) + spec.eps, numerator.shape)
        # A row that has seen only zeros stays, also with eps = 0.
        return np.divide(numerator, root, out=np.zeros_like(numerator), where=root != 0)
