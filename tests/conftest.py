from collections.abc import Iterator

import pytest

from worker_pool import WorkerPool


@pytest.fixture(scope="session")
def worker_pool() -> Iterator[WorkerPool]:
    """Processes that run functions as the ranks of a gloo group; see worker_pool.py."""
    pool = WorkerPool()
    yield pool
    pool.close()
