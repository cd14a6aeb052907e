from collections.abc import Iterator

import pytest

from worker_pool import WorkerPool


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="try 5,000 random problems instead of 500")


@pytest.fixture(scope="session")
def worker_pool() -> Iterator[WorkerPool]:
    """Processes that run functions as the ranks of a gloo group; see worker_pool.py."""
    pool = WorkerPool()
    yield pool
    pool.close()
