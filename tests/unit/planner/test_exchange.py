"""Codecs and the way of the exchange: what a plan makes of them, and what is told where nothing travels."""

import pytest

from neo.comms.spec import CommsSpec, ExchangeMode
from neo.plan.sharding_plan import ShardingPlan
from neo.planner.exchange import exchange_note, exchange_of, has_pooled_exchange, idle_comms
from neo.strategy.summary import CommsUsed
from unit.plan.builders import machine, plan_for, table, tables

T = tables(table("a"), table("b"), prefix="")
CODED = CommsSpec("fp16", "bf16")
RELAYED = CommsSpec(exchange=ExchangeMode.HIERARCHICAL)


def planned(mode: str, world_size: int = 4, per_node: int = 2) -> ShardingPlan:
    hardware = machine(accelerators_per_node=per_node, num_nodes=-(-world_size // per_node))
    return plan_for(T, mode, world_size=world_size, hardware=hardware).plan


def test_settings_that_act_are_not_told() -> None:
    for mode in ("row_wise", "table_wise", "grid"):
        plan = planned(mode)
        assert has_pooled_exchange(plan)
        assert idle_comms(plan, CODED) == idle_comms(plan, RELAYED) == idle_comms(plan, CommsSpec()) == ()


@pytest.mark.parametrize(
    ("mode", "world_size", "why"),
    [
        ("data_parallel", 4, "every table is data_parallel, and those are added up in fp32"),
        ("table_wise", 1, "one rank sends nothing"),
    ],
)
def test_settings_without_effect_are_told(mode: str, world_size: int, why: str) -> None:
    plan = planned(mode, world_size)
    assert idle_comms(plan, CODED) == (
        f"comms.forward: fp16 has no effect: {why}",
        f"comms.backward: bf16 has no effect: {why}",
    )
    assert idle_comms(plan, RELAYED) == (f"comms.exchange: hierarchical has no effect: {why}",)
    assert idle_comms(plan, CommsSpec()) == ()
    assert CommsUsed.of(plan, CODED) == CommsUsed(None, None, None, None)


def test_relays_need_several_nodes_of_several_ranks() -> None:
    plan = planned("row_wise", 2, 2)
    assert idle_comms(plan, RELAYED) == (
        "comms.exchange: hierarchical has no effect: there are no relays between nodes",
    )
    assert exchange_note(plan, CommsSpec()) == ""


def test_the_way_is_said_where_it_is_hierarchical() -> None:
    plan = planned("row_wise")
    assert exchange_of(plan, CommsSpec()) is ExchangeMode.HIERARCHICAL
    assert exchange_note(plan, CommsSpec()) == (
        "the exchange is hierarchical: within each of 2 nodes first, then between them."
    )
    flat = CommsSpec(exchange=ExchangeMode.FLAT)
    assert (exchange_of(plan, flat), exchange_note(plan, flat)) == (ExchangeMode.FLAT, "")
    assert exchange_note(planned("data_parallel"), CommsSpec()) == ""


def test_what_travelled_is_said_with_the_rule_of_its_scale() -> None:
    plan = planned("row_wise")
    assert CommsUsed.of(plan, CODED) == CommsUsed("fp16", "bf16", "hierarchical", None)
    rule = "samples of the global batch, rounded up to a power of two"
    assert CommsUsed.of(plan, CommsSpec("fp32", "fp16")).loss_scale == rule
    assert CommsUsed.of(plan, CommsSpec("fp32", "fp16", loss_scale=1000.0)).loss_scale == "1024"
