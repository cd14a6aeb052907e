"""The configuration group ``hardware``: strings with units, checked, turned into a frozen machine.

``HardwareSpec`` and its parts live in ``neo.hardware.machine`` and are offered here too.
"""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

from neo.errors import Finding
from neo.hardware.detect import LocalHost, detect_local_host
from neo.hardware.machine import AcceleratorSpec, HardwareSpec, Link, MemoryTier
from neo.limits import MAX_RANKS, outside_limits
from neo.units import Unit, parse_bytes, parse_quantity

__all__ = ["AcceleratorSpec", "HardwareConfig", "HardwareSpec", "Link", "MemoryTier"]

_RATE = {"unit": Unit.BYTES_PER_S}
_MAX_CAPACITY = 2**60


@dataclass
class MemoryTierConfig:
    """One memory tier; ``capacity`` 0 switches it off, null means detect (``hardware=local``) or unknown."""

    capacity: str | None = field(default=None, metadata={"unit": Unit.BYTES})
    bandwidth: str | None = field(default=None, metadata=_RATE)
    efficiency: float | None = None
    source: str = ""

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to the tier."""
        findings = _unreadable(self)
        if findings:
            return findings
        if self.capacity is not None and parse_bytes(self.capacity) == 0:
            return []
        if self.capacity is not None and parse_bytes(self.capacity) > _MAX_CAPACITY:
            findings.append(Finding("capacity", f"'{self.capacity}' is above the limit 1024PiB"))
        if self.bandwidth is not None and parse_quantity(self.bandwidth, Unit.BYTES_PER_S) == 0:
            fix = "write a rate like 1.5TB/s, or switch the tier off with capacity=0"
            findings.append(Finding("bandwidth", f"'{self.bandwidth}' is impossible for an enabled tier", fix))
        return findings + _bad_share("efficiency", self.efficiency)

    def to_tier(self) -> MemoryTier:
        """Return the frozen form."""
        return MemoryTier(
            capacity_bytes=None if self.capacity is None else parse_bytes(self.capacity),
            bandwidth_bytes_per_s=_parsed(self.bandwidth, Unit.BYTES_PER_S),
            efficiency=self.efficiency,
            source=self.source,
        )


@dataclass
class LinkConfig:
    """One link, per accelerator and direction; null means unknown."""

    bandwidth: str | None = field(default=None, metadata=_RATE)
    latency: str | None = field(default=None, metadata={"unit": Unit.SECONDS})
    source: str = ""

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to the link."""
        findings = _unreadable(self)
        if not findings and _parsed(self.bandwidth, Unit.BYTES_PER_S) == 0:
            fix = "write a rate like 25GB/s or 200Gbps"
            findings.append(Finding("bandwidth", f"'{self.bandwidth}' is impossible for a link", fix))
        return findings

    def to_link(self) -> Link:
        """Return the frozen form."""
        bandwidth, latency = _parsed(self.bandwidth, Unit.BYTES_PER_S), _parsed(self.latency, Unit.SECONDS)
        return Link(bandwidth, latency, self.source)


@dataclass
class AcceleratorConfig:
    """``hardware.accelerator.*``; arithmetic rates in FLOP/s, dense."""

    name: str = "accelerator"
    hbm: MemoryTierConfig = field(default_factory=MemoryTierConfig)
    host_link: LinkConfig = field(default_factory=LinkConfig)
    fp32_flops: float | None = None
    tf32_flops: float | None = None
    fp16_flops: float | None = None
    bf16_flops: float | None = None
    gemm_efficiency: float | None = None
    source: str = ""

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``hardware.accelerator``."""
        findings = [finding.under("hbm") for finding in self.hbm.validate()]
        findings += [finding.under("host_link") for finding in self.host_link.validate()]
        for key in ("fp32_flops", "tf32_flops", "fp16_flops", "bf16_flops"):
            rate = getattr(self, key)
            if rate is not None and not (math.isfinite(rate) and rate > 0):
                problem = f"{rate} is not a finite number above 0 FLOP/s"
                findings.append(Finding(key, problem, "write null where it is not known"))
        return findings + _bad_share("gemm_efficiency", self.gemm_efficiency)

    def to_spec(self) -> AcceleratorSpec:
        """Return the frozen form of a valid configuration."""
        return AcceleratorSpec(
            name=self.name,
            hbm=self.hbm.to_tier(),
            host_link=self.host_link.to_link(),
            fp32_flops_per_s=self.fp32_flops,
            tf32_flops_per_s=self.tf32_flops,
            fp16_flops_per_s=self.fp16_flops,
            bf16_flops_per_s=self.bf16_flops,
            gemm_efficiency=self.gemm_efficiency,
            source=self.source,
        )


@dataclass
class NodeConfig:
    """``hardware.node.*``: what one node has beside its accelerators."""

    ddr: MemoryTierConfig = field(default_factory=MemoryTierConfig)
    ssd: MemoryTierConfig = field(default_factory=MemoryTierConfig)

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``hardware.node``."""
        tiers = (("ddr", self.ddr), ("ssd", self.ssd))
        return [finding.under(name) for name, tier in tiers for finding in tier.validate()]


@dataclass
class HardwareConfig:
    """``hardware.*``: one machine.

    With ``detect`` (``hardware=local``) every null among ``accelerators_per_node`` and the capacities of HBM and
    DDR is read off this host; elsewhere null means that the number is not known.

    Attributes:
        detect: Whether this host is looked at for what is null; ``hardware=local`` does.
    """

    name: str = "machine"
    detect: bool = False
    num_nodes: int = 1
    accelerators_per_node: int | None = None
    accelerator: AcceleratorConfig = field(default_factory=AcceleratorConfig)
    node: NodeConfig = field(default_factory=NodeConfig)
    scale_up: LinkConfig = field(default_factory=LinkConfig)
    scale_out: LinkConfig = field(default_factory=LinkConfig)

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``hardware``; impossible machines among them."""
        findings = self._counts()
        groups = (
            ("accelerator", self.accelerator),
            ("node", self.node),
            ("scale_up", self.scale_up),
            ("scale_out", self.scale_out),
        )
        readable = [finding.under(name) for name, group in groups for finding in group.validate()]
        findings += readable
        if not readable:
            findings += self._slower_inside()
        return findings + self._without_capacity()

    def _counts(self) -> list[Finding]:
        findings = outside_limits(self, {"num_nodes": (1, MAX_RANKS), "accelerators_per_node": (1, MAX_RANKS)})
        if self.accelerators_per_node is None and not self.detect:
            fix = "write a number (only hardware=local detects it)"
            findings.append(Finding("accelerators_per_node", "is null", fix))
        if findings or self.accelerators_per_node is None:
            return findings
        if self.num_nodes * self.accelerators_per_node <= MAX_RANKS:
            return []
        problem = f"{self.num_nodes} nodes of {self.accelerators_per_node} accelerators are more than {MAX_RANKS} ranks"
        return [Finding("num_nodes", problem, "plan for fewer")]

    def _slower_inside(self) -> list[Finding]:
        inside = _parsed(self.scale_up.bandwidth, Unit.BYTES_PER_S)
        outside = _parsed(self.scale_out.bandwidth, Unit.BYTES_PER_S)
        if inside is None or outside is None or inside >= outside:
            return []
        problem = (
            f"'{self.scale_up.bandwidth}' inside a node is slower than '{self.scale_out.bandwidth}' between nodes "
            "(hardware.scale_out.bandwidth)"
        )
        fix = "both are per accelerator and direction; give scale_up at least the rate of scale_out"
        return [Finding("scale_up.bandwidth", problem, fix)]

    def _without_capacity(self) -> list[Finding]:
        findings = []
        if self.accelerator.hbm.capacity is None and not self.detect:
            fix = "write a size like 40GiB, or 0 to switch the tier off (only hardware=local detects it)"
            findings.append(Finding("accelerator.hbm.capacity", "is null: an enabled tier needs a capacity", fix))
        for key, tier in (("node.ddr", self.node.ddr), ("node.ssd", self.node.ssd)):
            detected = self.detect and key == "node.ddr"
            if tier.capacity is None and tier.bandwidth is not None and not detected:
                problem = f"is null, but {key}.bandwidth '{tier.bandwidth}' enables the tier"
                fix = "write a size like 1.5TB, or 0 to switch the tier off"
                findings.append(Finding(f"{key}.capacity", problem, fix))
        return findings

    def to_spec(self) -> HardwareSpec:
        """Return the frozen form of a valid configuration; with ``detect``, looks at this host."""
        accelerator, ddr = self.accelerator.to_spec(), self.node.ddr.to_tier()
        per_node, shared_host_bytes = self.accelerators_per_node, None
        if self.detect:
            detected = _with_local_host(detect_local_host(), per_node, accelerator, ddr)
            per_node, accelerator, ddr, shared_host_bytes = detected
        if per_node is None:
            raise ValueError("hardware.accelerators_per_node is null: validate() was not heeded")
        return HardwareSpec(
            name=self.name,
            num_nodes=self.num_nodes,
            accelerators_per_node=per_node,
            world_size=self.num_nodes * per_node,
            accelerator=accelerator,
            ddr=ddr,
            ssd=self.node.ssd.to_tier(),
            scale_up=self.scale_up.to_link(),
            scale_out=self.scale_out.to_link(),
            shared_host_bytes=shared_host_bytes,
            # A number of accelerators per node that is asked for is kept: so nodes are emulated on one host.
            is_one_node=shared_host_bytes is not None and self.accelerators_per_node is None,
        )


def _with_local_host(
    host: LocalHost, per_node: int | None, accelerator: AcceleratorSpec, ddr: MemoryTier
) -> tuple[int, AcceleratorSpec, MemoryTier, int | None]:
    """Fill what the configuration left null with what was found on this host."""
    count = host.num_accelerators if per_node is None else per_node
    hbm = accelerator.hbm
    if host.num_gpus > 0:
        hbm = hbm if hbm.capacity_bytes is not None else _found(host.gpu_memory_bytes)
        ddr = ddr if ddr.capacity_bytes is not None else _found(host.host_memory_bytes)
        return count, replace(accelerator, hbm=hbm), ddr, None
    # Without GPUs the processes' tables lie in host memory: that is their fast tier, and nothing is left below it.
    if ddr.capacity_bytes is None:
        ddr = MemoryTier(0, source="host memory is the first tier where there is no GPU")
    if hbm.capacity_bytes is not None:
        return count, accelerator, ddr, None
    hbm = _found(host.host_memory_bytes // count)
    return count, replace(accelerator, hbm=hbm), ddr, host.host_memory_bytes


def _found(capacity_bytes: int) -> MemoryTier:
    return MemoryTier(capacity_bytes, source="detected on this host, rounded down")


def _unreadable(config: Any) -> list[Finding]:
    """Return a finding for each field of a quantity that cannot be read in its unit."""
    findings = []
    for entry in fields(config):
        written = getattr(config, entry.name)
        if "unit" not in entry.metadata or written is None:
            continue
        try:
            parse_quantity(written, entry.metadata["unit"])
        except ValueError as error:
            findings.append(Finding(entry.name, str(error)))
    return findings


def _bad_share(key: str, share: float | None) -> list[Finding]:
    if share is None or 0 < share <= 1:
        return []
    return [Finding(key, f"{share} is outside (0, 1]", "write null where it is not known")]


def _parsed(text: str | None, unit: Unit) -> float | None:
    return None if text is None else parse_quantity(text, unit)
