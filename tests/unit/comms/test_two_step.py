"""The two-step all-to-all gives what one step gives, over any nodes and sizes; as many bytes pass between nodes."""

import numpy as np
import pytest
import torch
from torch import Tensor

from neo.comms.collectives import Collectives
from neo.comms.two_step import TwoStepCollectives
from neo.testing.fake_collectives import run_ranks

WORLDS = [(world, local) for world in range(1, 9) for local in range(1, world + 1)]


def exchange(comms: Collectives, sizes: np.ndarray) -> Tensor:
    """Send ``sizes[rank][peer]`` numbers to every peer: sender, receiver and position as one number."""
    sent = [torch.arange(sizes[comms.rank][peer]) + 1000 * comms.rank + 100 * peer for peer in range(comms.world_size)]
    received = torch.empty(int(sizes[:, comms.rank].sum()), dtype=torch.int64)
    comms.all_to_all(received, torch.cat(sent), sizes[:, comms.rank].tolist(), sizes[comms.rank].tolist()).wait()
    return received


@pytest.mark.parametrize(("world_size", "local_world_size"), WORLDS)
def test_every_message_arrives_in_rank_order(world_size: int, local_world_size: int) -> None:
    sizes = np.random.default_rng(world_size * 10 + local_world_size).integers(0, 4, (world_size, world_size))

    def rank(comms: Collectives) -> tuple[Tensor, Tensor, int, int]:
        flat = exchange(comms, sizes)
        flat_bytes = comms.traffic.between_nodes(comms.rank, local_world_size)
        two_step = exchange(TwoStepCollectives(comms, local_world_size), sizes)
        return flat, two_step, flat_bytes, comms.traffic.between_nodes(comms.rank, local_world_size) - flat_bytes

    results = run_ranks(world_size, rank)
    for flat, two_step, _, _ in results:
        assert torch.equal(flat, two_step)
    assert sum(result[2] for result in results) == sum(result[3] for result in results)


def test_a_message_leaves_its_node_from_the_rank_of_the_receivers_place() -> None:
    sizes = np.full((4, 4), 2)

    def rank(comms: Collectives) -> list[int]:
        exchange(TwoStepCollectives(comms, 2), sizes)
        return comms.traffic.sent_bytes

    sent = run_ranks(4, rank)
    assert [sent[0][3], sent[1][2], sent[2][1], sent[3][0]] == [0, 0, 0, 0]
    assert [sent[0][2], sent[1][3], sent[2][0], sent[3][1]] == [2 * 2 * 8] * 4  # both local ranks' two int64


def test_other_collectives_are_those_of_the_group() -> None:
    def rank(comms: Collectives) -> tuple[list[object], float, int]:
        two_step = TwoStepCollectives(comms, 2)
        total = torch.ones(3)
        two_step.all_reduce(total)
        two_step.barrier()
        return two_step.all_gather_object(comms.rank), float(total[0]), comms.traffic.reduced_bytes

    assert run_ranks(3, rank) == [([0, 1, 2], 3.0, 12)] * 3
