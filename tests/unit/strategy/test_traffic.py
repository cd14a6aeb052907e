"""Bytes of the embedding exchange: which link they took, and how many in a training step."""

from typing import Any, cast

from neo.comms.collectives import Traffic
from neo.strategy.traffic import TrafficBytes, TrafficMeter, TrafficPerStep


def test_bytes_are_sorted_by_the_link_that_they_took() -> None:
    traffic = Traffic(5)
    traffic.sent_bytes = [1, 10, 100, 1000, 10_000]
    traffic.reduced_bytes = 7
    # Nodes of two ranks, the last of one: what rank 3 keeps for itself took no link.
    assert TrafficBytes.of(traffic, rank=3, local_world_size=2) == TrafficBytes(100, 10_011, 7)
    assert TrafficBytes.of(traffic, rank=4, local_world_size=2) == TrafficBytes(0, 1_111, 7)
    assert TrafficBytes.of(traffic, rank=0, local_world_size=5) == TrafficBytes(11_110, 0, 7)


def test_only_training_steps_are_measured() -> None:
    sent = TrafficBytes()
    meter = TrafficMeter(lambda: sent)
    nothing = cast(Any, None)
    for in_step, in_validation in ((TrafficBytes(4, 2, 1), TrafficBytes(50, 50, 50)), (TrafficBytes(6, 4, 3), sent)):
        meter.on_train_batch_start(nothing, nothing, nothing, 0)
        sent = sent + in_step
        meter.on_train_batch_end(nothing, nothing, nothing, nothing, 0)
        sent = sent + in_validation
    assert (meter.total, meter.steps) == (TrafficBytes(10, 6, 4), 2)
    assert TrafficPerStep.of([meter.total, TrafficBytes(2, 0, 0)], meter.steps) == TrafficPerStep(6.0, 3.0, 2.0)


def test_a_run_without_a_step_has_no_mean() -> None:
    assert TrafficPerStep.of([TrafficBytes()], 0) is None
