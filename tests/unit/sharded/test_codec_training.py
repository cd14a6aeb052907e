"""A hundred steps of SGD whose pooled vectors and gradients travel in fewer bytes: the loss stays by that of fp32."""

from functools import cache

import pytest

from codec_training import SHARE, WORLD_SIZE, bytes_of_a_step, train
from neo.testing.fake_collectives import run_ranks


@cache
def _fp32() -> list[float]:
    return run_ranks(WORLD_SIZE, lambda comms: train(comms, ("fp32", "fp32")))[0]


@pytest.mark.parametrize(
    ("codecs", "gap"),
    [(("fp16", "bf16"), 5e-4), (("fp16", "fp16"), 2e-4), (("bf16", "bf16"), 1e-3), (("int8", "int8"), 2e-3)],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_a_hundred_steps_stay_within_the_stated_gap(codecs: tuple[str, str], gap: float) -> None:
    expected, found = _fp32(), run_ranks(WORLD_SIZE, lambda comms: train(comms, codecs))[0]
    assert expected[0] - expected[-1] > 0.2, "the model learns, so that a gap has room to grow"
    differences = [abs(a - b) for a, b in zip(expected, found, strict=True)]
    assert 0.0 < max(differences) <= gap


# Rank 0 holds a row shard of 'user' (20 columns) and of 'words' (8); rank 1 the same, and both outputs of 'items' (12).
COLUMNS, VECTORS = (28, 52), (2, 4)


def _wire_bytes(codec: str, rank: int) -> int:
    """Return the bytes of one sample's vectors that rank ``rank`` looked up."""
    size = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}[codec]
    return size * COLUMNS[rank] + (8 * VECTORS[rank] if codec == "int8" else 0)


@pytest.mark.parametrize("forward", ["fp16", "bf16", "int8"])
@pytest.mark.parametrize("backward", ["fp16", "bf16", "int8"])
def test_the_bytes_on_the_wire_are_those_of_the_codecs(forward: str, backward: str) -> None:
    """Two bytes per value are half of fp32's; ids and lengths stay as they are."""
    plain = run_ranks(WORLD_SIZE, lambda comms: bytes_of_a_step(comms, ("fp32", "fp32")))
    coded = run_ranks(WORLD_SIZE, lambda comms: bytes_of_a_step(comms, (forward, backward)))
    for rank in range(WORLD_SIZE):
        saved = SHARE * (_wire_bytes("fp32", rank) - _wire_bytes(forward, rank))
        assert plain[rank][0] - coded[rank][0] == saved
        # A backward sends the gradients of this rank's samples to the rank that looked them up, and nothing else.
        assert plain[rank][1] == SHARE * _wire_bytes("fp32", 1 - rank)
        assert coded[rank][1] == SHARE * _wire_bytes(backward, 1 - rank)
