"""An all-to-all in two steps: inside each node first, then between ranks of the same place in their nodes.

As many bytes cross the nodes as in one step, but in ``nodes`` messages per rank instead of ``ranks``, and each over the
NIC of the accelerator that the receiver's place in its node names.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from neo.comms.collectives import Collectives, Work
from neo.hardware.topology import node_of, ranks_of_node, relay_of


class TwoStepCollectives(Collectives):
    """The same group, with all-to-alls in two steps.

    Args:
        inner: The group.
        local_world_size: Ranks of a full node; the last node may have fewer.
    """

    def __init__(self, inner: Collectives, local_world_size: int) -> None:
        super().__init__(inner.rank, inner.world_size)
        self._inner = inner
        self.traffic = inner.traffic
        self._per_node = local_world_size
        own_node = node_of(inner.rank, local_world_size)
        self._peers = ranks_of_node(own_node, inner.world_size, local_world_size)
        nodes = -(-inner.world_size // local_world_size)
        self._relays_of_own = [relay_of(node, inner.rank, inner.world_size, local_world_size) for node in range(nodes)]
        # Final ranks that each peer of this node relays for.
        self._relayed = {
            peer: [
                final
                for final in range(inner.world_size)
                if relay_of(own_node, final, inner.world_size, local_world_size) == peer
            ]
            for peer in self._peers
        }

    def all_to_all(
        self, output: Tensor, source: Tensor, output_splits: Sequence[int], source_splits: Sequence[int]
    ) -> Work:
        """See ``Collectives``; the first step is done when this returns, the second is under way."""
        own = self._relayed[self.rank]
        sizes = self._exchange_sizes(source_splits, source.device)  # [peers, own]
        parts = source.split(list(source_splits))
        message = torch.cat([parts[final] for peer in self._peers for final in self._relayed[peer]])
        to_peers = [0] * self.world_size
        from_peers = [0] * self.world_size
        for position, peer in enumerate(self._peers):
            to_peers[peer] = sum(source_splits[final] for final in self._relayed[peer])
            from_peers[peer] = sum(sizes[position])
        gathered = source.new_empty(sum(from_peers))
        self._inner.all_to_all(gathered, message, from_peers, to_peers).wait()
        blocks = gathered.split([size for row in sizes for size in row])
        onward = torch.cat([blocks[p * len(own) + f] for f in range(len(own)) for p in range(len(self._peers))])
        to_finals = [0] * self.world_size
        for position, final in enumerate(own):
            to_finals[final] = sum(row[position] for row in sizes)
        from_relays = [0] * self.world_size
        for node, relay in enumerate(self._relays_of_own):
            senders = ranks_of_node(node, self.world_size, self._per_node)
            from_relays[relay] = sum(output_splits[sender] for sender in senders)
        return self._inner.all_to_all(output, onward, from_relays, to_finals)

    def all_gather_object(self, value: object) -> list[object]:
        """See ``Collectives``."""
        return self._inner.all_gather_object(value)

    def barrier(self) -> None:
        """See ``Collectives``."""
        self._inner.barrier()

    def _all_to_all(
        self, output: Tensor, source: Tensor, output_splits: Sequence[int], source_splits: Sequence[int]
    ) -> Work:
        return self._inner.all_to_all(output, source, output_splits, source_splits)

    def _all_reduce(self, tensor: Tensor) -> None:
        self._inner._all_reduce(tensor)

    def _exchange_sizes(self, source_splits: Sequence[int], device: torch.device) -> list[list[int]]:
        """Tell every peer how much it is to relay to each of its final ranks; return what the peers say to this one."""
        own = len(self._relayed[self.rank])
        sizes = [source_splits[final] for peer in self._peers for final in self._relayed[peer]]
        message = torch.tensor(sizes, dtype=torch.int64, device=device)
        to_peers, from_peers = [0] * self.world_size, [0] * self.world_size
        for peer in self._peers:
            to_peers[peer], from_peers[peer] = len(self._relayed[peer]), own
        received = message.new_empty(own * len(self._peers))
        self._inner.all_to_all(received, message, from_peers, to_peers).wait()
        told: list[list[int]] = received.view(len(self._peers), own).tolist()
        return told
