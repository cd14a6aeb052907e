import os
import time

import pytest
import torch
import torch.distributed as dist

from neo.errors import ConfigError, Finding
from worker_pool import WorkerPool


def sum_of_ranks(extra: torch.Tensor) -> tuple[int, int, float]:
    value = extra + dist.get_rank()
    dist.all_reduce(value)
    return dist.get_rank(), dist.get_world_size(), float(value)


def fail_on_rank_one() -> None:
    if dist.get_rank() == 1:
        raise ConfigError([Finding("seed", "bad"), Finding("model", "worse")])
    dist.all_reduce(torch.zeros(1))


def sleep_on_rank_zero() -> None:
    if dist.get_rank() == 0:
        time.sleep(60)


def die() -> None:
    os._exit(3)


def test_every_call_has_a_group_of_its_own(worker_pool: WorkerPool) -> None:
    for world_size in (2, 1, 3):
        results = worker_pool.run(world_size, sum_of_ranks, torch.ones(1))
        expected = float(world_size + sum(range(world_size)))
        assert results == [(rank, world_size, expected) for rank in range(world_size)]


def test_the_first_error_is_raised_and_nothing_hangs(worker_pool: WorkerPool) -> None:
    started_s = time.monotonic()
    with pytest.raises(ConfigError, match="2 mistakes") as error:
        worker_pool.run(2, fail_on_rank_one, timeout_s=30)
    assert time.monotonic() - started_s < 20
    assert [finding.key for finding in error.value.findings] == ["seed", "model"]
    assert "in fail_on_rank_one" in error.value.__notes__[0]
    assert len(worker_pool.run(2, sum_of_ranks, torch.ones(1))) == 2


def test_silent_and_dead_ranks_are_named_and_replaced(worker_pool: WorkerPool) -> None:
    with pytest.raises(TimeoutError, match=r"ranks \[0\] of 2 did not answer within 2 s"):
        worker_pool.run(2, sleep_on_rank_zero, timeout_s=2)
    with pytest.raises(RuntimeError, match="process ended with 3"):
        worker_pool.run(2, die)
    assert len(worker_pool.run(2, sum_of_ranks, torch.ones(1))) == 2
