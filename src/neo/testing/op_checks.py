"""How the suite for ops backends runs one and compares its results."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from neo.ops.pooled_lookup import PooledLookup
from neo.optim.spec import SparseOptimizerSpec
from neo.tables.spec import WeightsDtype
from neo.testing.op_problem import Floats, OpInput, dyadic

# Relative to the largest value: a few float32 roundings (2^-24 = 6e-8 each) over three steps.
TOLERANCE = 2e-6
# Distance of two neighbours, relative to the value, and the smallest distance there is.
SPACINGS = {WeightsDtype.FP16: (2.0**-10, 2.0**-24), WeightsDtype.BF16: (2.0**-7, 2.0**-133)}


def fill(op: PooledLookup) -> None:
    """Fill all weights from a dyadic grid, the same at every call."""
    random = np.random.default_rng(0)
    for weight in op.weights():
        weight.copy_(tensor(op, dyadic(random, *weight.shape)))


def tensor(op: PooledLookup, values: Floats) -> Tensor:
    """Return an array as float32 on the device."""
    return torch.from_numpy(values).float().to(op.device)


def tensors(op: PooledLookup, given: OpInput) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return ids, offsets and factors as the operator takes them."""
    factors = None if given.factors is None else tensor(op, given.factors).requires_grad_()
    return torch.from_numpy(given.values).to(op.device), torch.from_numpy(given.offsets).to(op.device), factors


def run(op: PooledLookup, given: OpInput) -> tuple[Tensor, Tensor | None]:
    """Run forward and backward; return the output and the gradient of the factors."""
    values, offsets, factors = tensors(op, given)
    output = op(values, offsets, factors)
    assert output.dtype is torch.float32, f"the output is {output.dtype}, not float32"
    output.backward(tensor(op, given.gradient))
    return output.detach().cpu(), None if factors is None or factors.grad is None else factors.grad.cpu()


def weights(op: PooledLookup) -> list[Tensor]:
    """Return copies of the weights."""
    return [weight.detach().cpu().clone() for weight in op.weights()]


def copies(op: PooledLookup) -> list[Tensor]:
    """Return weights and states."""
    states = [state[name] for state in op.states() for name in sorted(state)]
    return [tensor.detach().cpu().clone() for tensor in (*op.weights(), *states)]


def all_equal(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    """Return whether two lists of tensors have the same bits."""
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def array(tensor: Tensor) -> Floats:
    """Return a copy in float64."""
    return tensor.detach().cpu().double().numpy().copy()


def assert_close(got: Tensor, expected: Tensor | Floats, optimizer: SparseOptimizerSpec, what: str) -> None:
    """Assert that a result is the expected one within ``TOLERANCE``."""
    wanted = array(expected) if isinstance(expected, Tensor) else expected
    found = array(got)
    assert found.shape == wanted.shape, f"{optimizer}: {what} is {found.shape}, not {wanted.shape}"
    limit = TOLERANCE * _largest(wanted)
    error = float(_errors(found, wanted, f"{optimizer}: {what}").max(initial=0.0))
    assert error <= limit, f"{optimizer}: {what} is off by {error:.3g}, more than {limit:.3g}"


def _largest(wanted: Floats) -> float:
    """Return the largest finite absolute value, at least 1."""
    return max(1.0, float(np.abs(wanted).max(initial=0.0, where=np.isfinite(wanted))))


def _errors(found: Floats, wanted: Floats, what: str) -> Floats:
    """Return the absolute errors of the finite values; all others have to be NaN or infinite where they should."""
    finite = np.isfinite(wanted)
    hidden = int((~finite & np.isfinite(found)).sum())
    assert not hidden, f"{what}: {hidden} finite values where NaN or infinity has to stay visible"
    spread = int((finite & ~np.isfinite(found)).sum())
    assert not spread, f"{what}: {spread} values are not finite where they should be"
    return np.abs(np.subtract(found, wanted, out=np.zeros_like(wanted), where=finite))


def assert_rounded(got: Floats, exact: Floats, optimizer: SparseOptimizerSpec) -> None:
    """Weights are the exact ones, rounded once to their type: to the nearest, or at random to a neighbour."""
    error = _errors(got, exact, f"{optimizer}: weights")
    limit = np.full_like(error, TOLERANCE * _largest(exact))
    got, exact = (np.where(np.isfinite(exact), values, 0.0) for values in (got, exact))
    if optimizer.weights_dtype is not WeightsDtype.FP32:
        relative, smallest = SPACINGS[optimizer.weights_dtype]
        spacing = np.maximum(relative * np.maximum(np.abs(got), np.abs(exact)), smallest)
        limit += spacing if optimizer.rounds_stochastically else spacing / 2
    worst = float((error - limit).max(initial=-1.0))
    assert worst <= 0, f"{optimizer}: weights are off by {float(error.max()):.3g}, {worst:.3g} more than allowed"
