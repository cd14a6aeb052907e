"""The promise itself as a suite: whatever the plan, a sharded run equals the dense reference.

For authors of ops backends, codecs and optimizers, in a test module of theirs::

    class TestMine(ShardingSuite):
        choices = Choices(kernels=("mine",))
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from neo.comms.codecs import Codec, ErrorBound
from neo.comms.collectives import Collectives
from neo.comms.spec import CODECS
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ColumnWiseSemantics
from neo.tables.spec import WeightsDtype
from neo.testing.fake_collectives import run_ranks
from neo.testing.oracle import DenseReference, Floats
from neo.testing.random_problem import Choices, Problem
from neo.testing.sharded_run import RunResult, column_blocks_of, run_sharded

# Relative to the largest weight of the table: a few float32 roundings (2^-24 = 6e-8 each) over five steps.
TOLERANCE = 2e-6
# Largest change of a weight by one rounding, relative to it: a stochastic one may go a whole unit in the last place.
_ROUNDING = {WeightsDtype.FP32: 0.0, WeightsDtype.FP16: 2.0**-10, WeightsDtype.BF16: 2.0**-7}
_SMALLEST_FP16 = 2.0**-24
_MOST_HOPS = 2  # A vector passes its codec at most twice: to the relay in its node, and from there.
_SLACK = 1.25  # Bounds are products of first order.


class ShardingSuite:
    """Random problems on in-process ranks. Subclasses say what may be used, and how many problems to try.

    Attributes:
        choices: What the random problems are made of.
        seeds: The problems.
    """

    choices = Choices()
    seeds = range(40)

    def test_a_sharded_run_equals_the_dense_reference(self) -> None:
        """Compare outputs, gradients of the weights, tables and optimizer states of every problem."""
        for seed in self.seeds:
            check(Problem(seed, self.choices))


def run_problem(collectives: Collectives, problem: Problem, checkpoint: Path | None = None) -> RunResult:
    """Run a problem as one rank, by way of a checkpoint in the middle if that is given."""
    return run_sharded(
        collectives,
        problem.tables,
        plan=problem.plan,
        optimizer=problem.optimizer,
        table_optimizers=problem.table_optimizers,
        steps=problem.steps,
        weighted=problem.weighted,
        comms=problem.comms,
        semantics=problem.semantics,
        checkpoint=checkpoint,
    )


def check(problem: Problem, results: list[RunResult] | None = None) -> None:
    """Compare a problem's run with the dense reference, within the bounds of its types and codecs.

    Args:
        problem: The problem.
        results: Of every rank; run on in-process ranks if None.

    Raises:
        AssertionError: They differ; a note tells the problem.
    """
    try:
        if results is None:
            results = run_ranks(problem.world_size, lambda collectives: run_problem(collectives, problem))
        _Comparison(problem, results[0]).run()
        for result in results[1:]:
            for name, table in results[0].tables.items():
                assert np.array_equal(result.tables[name], table), f"ranks disagree about {name}"
    except BaseException as error:
        error.add_note(f"{problem}")
        raise


class _Comparison:
    """One problem's reference, followed step by step beside what the run gave."""

    def __init__(self, problem: Problem, result: RunResult) -> None:
        self.problem, self.result = problem, result
        self.optimizers = {table.name: problem.optimizer_of(table.name) for table in problem.tables}
        split = column_blocks_of(problem.plan) if problem.semantics is ColumnWiseSemantics.PER_SHARD else {}
        self.blocks = {name: ranges for name, ranges in split.items() if self.optimizers[name].is_rowwise}
        self.reference = DenseReference(problem.tables, result.initial, self.optimizers, self.blocks)
        self.largest = {name: float(np.abs(table).max()) for name, table in result.initial.items()}
        self.rounded = dict.fromkeys(self.largest, 0.0)  # what roundings of 16-bit weights may add up to so far
        self.coded = dict.fromkeys(self.largest, 0.0)  # what the backward codec may add up to so far
        self.forward, self.backward = _bound(problem.comms.forward), _bound(problem.comms.backward)

    def run(self) -> None:
        """Compare every step, then the tables and states."""
        for number, step in enumerate(self.problem.steps):
            self._compare_outputs(number)
            self._compare_weights_gradients(number)
            self.reference.backward(step.batch, step.gradient)
            self._account(number)
        for table in self.problem.tables:
            got, want = self.result.tables[table.name], self.reference.weights[table.name]
            difference = float(np.abs(got - want).max())
            limit = self._weights_bound(table.name)
            assert difference <= limit, f"table {table.name}: max|difference| {difference:.3g} > {limit:.3g}"
            if self._is_plain(table.name):
                self._compare_states(table.name)

    def _weights_bound(self, name: str) -> float:
        return TOLERANCE * self.largest[name] + _SLACK * (self.rounded[name] + self.coded[name])

    def _account(self, number: int) -> None:
        """Add what this step may have changed beyond float32 rounding."""
        step = self.problem.steps[number]
        gradients = self.reference.by_name(step.gradient)
        widest = {n: np.abs(g).max(axis=1, keepdims=True, initial=0.0) + 0 * g for n, g in gradients.items()}
        zeros = {name: np.zeros_like(table) for name, table in self.reference.weights.items()}
        sums = DenseReference(self.problem.tables, zeros, SparseOptimizerSpec("sgd", lr=1.0))
        sums.backward(step.batch, widest)
        for name, table in self.reference.weights.items():
            self.largest[name] = max(self.largest[name], float(np.abs(table).max()))
            optimizer = self.optimizers[name]
            dtype = optimizer.weights_dtype
            self.rounded[name] += _ROUNDING[dtype] * self.largest[name]
            self.rounded[name] += _SMALLEST_FP16 if dtype is WeightsDtype.FP16 else 0.0
            relative = _MOST_HOPS * self.backward.relative * float(np.abs(sums.weights[name]).max())
            absolute = _MOST_HOPS * self.backward.absolute * len(step.batch.values)
            self.coded[name] += optimizer.lr * (relative + absolute)

    def _compare_outputs(self, number: int) -> None:
        batch = self.problem.steps[number].batch
        magnitudes = {name: np.abs(table) for name, table in self.reference.weights.items()}
        ones = {name: np.ones_like(table) for name, table in self.reference.weights.items()}
        wanted = self.reference.outputs(batch)
        magnitude = DenseReference(self.problem.tables, magnitudes, self.optimizers).outputs(batch)
        factors = DenseReference(self.problem.tables, ones, self.optimizers).outputs(batch)
        for table in self.problem.tables:
            for name in map(table.output_name, table.feature_names):
                got, want = self.result.outputs[number][name], wanted[name]
                assert got.shape == want.shape, f"output {name} of step {number}: {got.shape} is not {want.shape}"
                vector = magnitude[name].max(axis=1, keepdims=True, initial=0.0)
                relative = 0.0 if self.problem.plan.tables[table.name].is_replicated else self.forward.relative
                limit = (_SLACK * _MOST_HOPS * relative + TOLERANCE) * vector + factors[name] * self._weights_bound(
                    table.name
                )
                limit = limit + _SLACK * _MOST_HOPS * self.problem.world_size * self.forward.absolute + 1e-12
                worst = float((np.abs(got - want) - limit).max(initial=0.0))
                assert worst <= 0, f"output {name} of step {number}: {worst:.3g} beyond its bound"

    def _compare_weights_gradients(self, number: int) -> None:
        step, got = self.problem.steps[number], self.result.weights_gradients[number]
        if got is None or step.batch.weights is None:
            return
        want = self.reference.weights_gradient(step.batch, step.gradient)
        limit = 1e-5
        for table in (table for table in self.problem.tables if table.weighted):
            outputs = len(table.feature_names) * table.embedding_dim
            limit += (
                8
                * outputs
                * (self._weights_bound(table.name) + _MOST_HOPS * self.backward.relative * self.largest[table.name])
            )
        assert np.abs(got - want).max(initial=0.0) <= limit, f"weights gradient of step {number}"

    def _is_plain(self, name: str) -> bool:
        """Return whether the states of a table follow from exact float32 arithmetic."""
        is_fp32 = self.optimizers[name].weights_dtype is WeightsDtype.FP32
        return is_fp32 and self.problem.comms.backward == "fp32" and name not in self.blocks

    def _compare_states(self, name: str) -> None:
        states: Mapping[str, Floats] = self.reference.states(name)
        assert set(states) == set(self.result.states[name])
        for state, want in states.items():
            difference = float(np.abs(self.result.states[name][state] - want).max())
            limit = 1e-5 * max(1e-3, float(np.abs(want).max()))
            assert difference <= limit, f"state {state} of {name}: max|difference| {difference:.3g} > {limit:.3g}"


def _bound(codec: str) -> ErrorBound:
    found = CODECS.get(codec)()
    assert isinstance(found, Codec)
    return found.bound
