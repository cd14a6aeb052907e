"""What a plan does with the settings of the pooled exchange: which way it goes, and what has nothing to act on."""

from neo.comms.spec import CommsSpec, ExchangeMode, is_hierarchical
from neo.plan.sharding_plan import ShardingPlan


def has_pooled_exchange(plan: ShardingPlan) -> bool:
    """Return whether pooled vectors travel between ranks: there are several, and a table that is no copy on each."""
    return plan.world_size > 1 and not all(placed.is_replicated for placed in plan.tables.values())


def exchange_of(plan: ShardingPlan, comms: CommsSpec) -> ExchangeMode:
    """Return the way of pooled vectors, ``flat`` or ``hierarchical``."""
    relayed = is_hierarchical(comms.exchange, plan.world_size, plan.local_world_size)
    return ExchangeMode.HIERARCHICAL if relayed and has_pooled_exchange(plan) else ExchangeMode.FLAT


def idle_comms(plan: ShardingPlan, comms: CommsSpec) -> tuple[str, ...]:
    """Return a note for each setting of ``comms`` that was asked for and that this plan has no use for."""
    why = ""
    if not has_pooled_exchange(plan):
        one = plan.world_size == 1
        why = "one rank sends nothing" if one else "every table is data_parallel, and those are added up in fp32"
    notes = [f"comms.{key}: {getattr(comms, key)} has no effect: {why}" for key in comms.coded_keys() if why]
    if comms.exchange is ExchangeMode.HIERARCHICAL and exchange_of(plan, comms) is ExchangeMode.FLAT:
        notes.append(f"comms.exchange: hierarchical has no effect: {why or 'there are no relays between nodes'}")
    return tuple(notes)


def exchange_note(plan: ShardingPlan, comms: CommsSpec) -> str:
    """Return what a plan's report says about the exchange; empty where it is flat."""
    if exchange_of(plan, comms) is ExchangeMode.FLAT:
        return ""
    nodes = -(-plan.world_size // plan.local_world_size)
    return f"the exchange is hierarchical: within each of {nodes} nodes first, then between them."
