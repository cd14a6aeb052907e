"""Ranks as threads: they meet, they wait for each other, and a rank that fails or stays away ends the others."""

import threading
import time

import pytest
import torch

from neo.comms.collectives import Collectives
from neo.testing.fake_collectives import run_ranks


def test_every_rank_gets_the_values_of_all_meeting_after_meeting() -> None:
    def rank(comms: Collectives) -> list[list[object]]:
        return [comms.all_gather_object((comms.rank, meeting)) for meeting in range(50)]

    expected = [[(rank, meeting) for rank in range(5)] for meeting in range(50)]
    assert run_ranks(5, rank) == [expected] * 5


def test_one_rank_runs_at_a_time() -> None:
    running: list[int] = []

    def rank(comms: Collectives) -> int:
        for _ in range(20):
            running.append(comms.rank)
            time.sleep(0.0002)
            assert running[-1] == comms.rank  # nobody came in between
            comms.barrier()
        return len(running)

    assert run_ranks(3, rank) == [60] * 3


def test_the_error_of_a_rank_ends_the_others() -> None:
    def rank(comms: Collectives) -> None:
        if comms.rank == 1:
            raise KeyError("mine")
        comms.all_reduce(torch.ones(2))

    with pytest.raises(KeyError, match="mine"):
        run_ranks(4, rank)


def test_a_rank_that_stays_away_is_not_waited_for_for_ever() -> None:
    def rank(comms: Collectives) -> None:
        if comms.rank == 0:
            comms.barrier()

    with pytest.raises(threading.BrokenBarrierError):
        run_ranks(2, rank, timeout_s=0.2)


def test_a_world_of_one_needs_no_thread() -> None:
    assert run_ranks(1, lambda comms: comms.all_gather_object("alone")) == [["alone"]]
