"""Hardware as frozen facts: accelerators, memory tiers and links of one machine, and how it scales to a world size.

Every quantity is in bytes, seconds, bytes per second or FLOP per second. What is not known is None, never a guess.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class MemoryTier:
    """One kind of memory; of one accelerator (HBM) or of one node (DDR, SSD).

    Attributes:
        capacity_bytes: Its size; 0 switches the tier off, None means that it is not known.
        bandwidth_bytes_per_s: Peak rate of reading.
        efficiency: Share of the peak rate that embedding kernels reach.
        source: Where the numbers come from.
    """

    capacity_bytes: int | None = None
    bandwidth_bytes_per_s: float | None = None
    efficiency: float | None = None
    source: str = ""

    @property
    def usable_bytes(self) -> int:
        """Bytes that a plan may count on: 0 where the tier is off or its size unknown."""
        return self.capacity_bytes if self.capacity_bytes is not None else 0


@dataclass(frozen=True)
class Link:
    """One way between two places, per accelerator and direction.

    Attributes:
        bandwidth_bytes_per_s: Peak rate; of a shared NIC, the share of one accelerator.
        latency_s: Time of an empty message.
        source: Where the numbers come from.
    """

    bandwidth_bytes_per_s: float | None = None
    latency_s: float | None = None
    source: str = ""


@dataclass(frozen=True)
class AcceleratorSpec:
    """One accelerator.

    Attributes:
        name: Product name.
        hbm: Its own memory.
        host_link: Its way to the host's memory (PCIe).
        fp32_flops_per_s: Peak rate of dense FP32 arithmetic, in operations per second.
        tf32_flops_per_s: The same of TF32.
        fp16_flops_per_s: The same of FP16.
        bf16_flops_per_s: The same of BF16.
        gemm_efficiency: Share of the peak rate that large matrix products reach.
        source: Where the numbers come from.
    """

    name: str
    hbm: MemoryTier = MemoryTier()
    host_link: Link = Link()
    fp32_flops_per_s: float | None = None
    tf32_flops_per_s: float | None = None
    fp16_flops_per_s: float | None = None
    bf16_flops_per_s: float | None = None
    gemm_efficiency: float | None = None
    source: str = ""


@dataclass(frozen=True)
class HardwareSpec:
    """A machine of equal nodes with equal accelerators.

    Attributes:
        name: Name in prose: ``ZionEX``.
        num_nodes: Nodes; the last one may be partly used.
        accelerators_per_node: Accelerators of a full node.
        world_size: Accelerators in all: one rank each.
        accelerator: One accelerator.
        ddr: Host memory of one node.
        ssd: Solid-state storage of one node.
        scale_up: Way to the other accelerators of the node.
        scale_out: Way to the accelerators of other nodes.
        shared_host_bytes: If the "accelerators" are processes on the CPUs of one host: the memory they share
            (``accelerator.hbm`` is then the share of one). None for real accelerators.
        is_one_node: Whether all ranks are on one node, however many they are.
    """

    name: str
    num_nodes: int
    accelerators_per_node: int
    world_size: int
    accelerator: AcceleratorSpec
    ddr: MemoryTier = MemoryTier()
    ssd: MemoryTier = MemoryTier()
    scale_up: Link = Link()
    scale_out: Link = Link()
    shared_host_bytes: int | None = None
    is_one_node: bool = False

    @property
    def local_world_size(self) -> int:
        """Ranks of a full node."""
        return self.accelerators_per_node

    def label(self, count: int | None = None) -> str:
        """Return ``2 ZionEX accelerators``.

        Args:
            count: How many; all of them by default.
        """
        count = self.world_size if count is None else count
        kind = "accelerator" if self.shared_host_bytes is None else "CPU process"
        plural = "s" if kind == "accelerator" else "es"
        return f"{count} {self.name} {kind}{'' if count == 1 else plural}"

    def scaled_to(self, world_size: int) -> "HardwareSpec":
        """Return the same machine with ``world_size`` accelerators.

        Nodes are filled one after the other; where ``world_size`` is no multiple of a node, the last node is partly
        used. Of a node that is smaller than the real one, DDR and SSD are taken in proportion, so that what one
        accelerator can count on does not change with the number in use. Processes on the CPUs of one host share its
        memory evenly.

        Raises:
            ValueError: ``world_size`` is below 1.
        """
        if world_size < 1:
            raise ValueError(f"world_size {world_size} is below the limit 1")
        per_node = world_size if self.is_one_node else min(self.accelerators_per_node, world_size)
        accelerator = self.accelerator
        if self.shared_host_bytes is not None:
            hbm = replace(accelerator.hbm, capacity_bytes=self.shared_host_bytes // world_size)
            accelerator = replace(accelerator, hbm=hbm)
        return replace(
            self,
            num_nodes=-(-world_size // per_node),
            accelerators_per_node=per_node,
            world_size=world_size,
            accelerator=accelerator,
            ddr=_share(self.ddr, per_node, self.accelerators_per_node),
            ssd=_share(self.ssd, per_node, self.accelerators_per_node),
        )


def _share(tier: MemoryTier, part: int, whole: int) -> MemoryTier:
    capacity, bandwidth = tier.capacity_bytes, tier.bandwidth_bytes_per_s
    return replace(
        tier,
        capacity_bytes=None if capacity is None else capacity * part // whole,
        bandwidth_bytes_per_s=None if bandwidth is None else bandwidth * part / whole,
    )
