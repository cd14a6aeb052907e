"""Which node a rank is on, and which link joins two ranks."""

from neo.hardware.machine import HardwareSpec, Link


def node_of(rank: int, local_world_size: int) -> int:
    """Return the node of ``rank``: ranks fill one node after the other."""
    return rank // local_world_size


def ranks_of_node(node: int, world_size: int, local_world_size: int) -> range:
    """Return the ranks of ``node``; the last node may have fewer than ``local_world_size``."""
    begin = node * local_world_size
    return range(min(begin, world_size), min(begin + local_world_size, world_size))


def relay_of(node: int, final: int, world_size: int, local_world_size: int) -> int:
    """Return the rank of ``node`` that relays for the rank ``final``: its peer in place, so that all NICs are used."""
    ranks = ranks_of_node(node, world_size, local_world_size)
    return ranks[final % local_world_size % len(ranks)]


def link_between(first: int, second: int, hardware: HardwareSpec) -> Link | None:
    """Return the link that joins two ranks: scale-up inside a node, scale-out between nodes, None to itself.

    Raises:
        ValueError: A rank is outside the machine.
    """
    for rank in (first, second):
        if not 0 <= rank < hardware.world_size:
            raise ValueError(f"rank {rank} is outside [0, {hardware.world_size})")
    if first == second:
        return None
    per_node = hardware.local_world_size
    return hardware.scale_up if node_of(first, per_node) == node_of(second, per_node) else hardware.scale_out
