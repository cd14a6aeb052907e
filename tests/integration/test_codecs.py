"""The codecs between processes: gloo carries what the in-process ranks carry, byte for byte."""

import pytest

from codec_training import WORLD_SIZE, bytes_of_a_step, train
from neo.comms.collectives import TorchCollectives
from neo.testing.fake_collectives import run_ranks
from worker_pool import WorkerPool

STEPS = 10


def on_gloo(codecs: tuple[str, str]) -> tuple[list[float], tuple[int, int]]:
    return train(TorchCollectives(), codecs, STEPS), bytes_of_a_step(TorchCollectives(), codecs)


@pytest.mark.parametrize("codecs", [("fp16", "bf16"), ("bf16", "fp16"), ("int8", "int8")], ids="-".join)
def test_gloo_carries_every_codec(worker_pool: WorkerPool, codecs: tuple[str, str]) -> None:
    found = worker_pool.run(WORLD_SIZE, on_gloo, codecs)
    losses = run_ranks(WORLD_SIZE, lambda comms: train(comms, codecs, STEPS))
    sent = run_ranks(WORLD_SIZE, lambda comms: bytes_of_a_step(comms, codecs))
    assert [of_rank for of_rank, _ in found] == losses
    assert [tuple(of_rank) for _, of_rank in found] == sent
