"""Sharded run == dense reference, under random tables, plans, worlds, nodes, batches, optimizers, types and codecs.

500 problems on in-process ranks in every run, 5,000 with ``--long``, and 60 on gloo processes, which go
through a checkpoint in the middle.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neo.comms.collectives import TorchCollectives
from neo.comms.spec import CODECS
from neo.testing.random_problem import Choices, Problem
from neo.testing.sharded_run import RunResult
from neo.testing.sharding_suite import check, run_problem
from worker_pool import WorkerPool

CHOICES = Choices(codecs=tuple(name for name in ("fp32", "fp16", "bf16", "int8") if name in CODECS))
EXAMPLES, LONG_EXAMPLES, GLOO_EXAMPLES = 500, 5_000, 60


def test_sharded_equals_reference(pytestconfig: pytest.Config) -> None:
    examples = LONG_EXAMPLES if pytestconfig.getoption("--long") else EXAMPLES

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(st.integers(0, 2**32 - 1))
    def property_of(seed: int) -> None:
        check(Problem(seed, CHOICES))

    property_of()


@pytest.mark.parametrize("first", range(0, GLOO_EXAMPLES, 10))
def test_sharded_equals_reference_on_gloo(worker_pool: WorkerPool, tmp_path: Path, first: int) -> None:
    problems = [Problem(seed, CHOICES) for seed in range(first, first + 10)]
    for world_size in sorted({problem.world_size for problem in problems}):
        own = [problem for problem in problems if problem.world_size == world_size]
        by_rank = worker_pool.run(world_size, run_on_gloo, [problem.seed for problem in own], tmp_path)
        for position, problem in enumerate(own):
            check(problem, [results[position] for results in by_rank])


def run_on_gloo(seeds: list[int], folder: Path) -> list[RunResult]:
    """Run problems as one rank of a gloo group, each by way of a checkpoint."""
    return [run_problem(TorchCollectives(), Problem(seed, CHOICES), folder / str(seed)) for seed in seeds]
