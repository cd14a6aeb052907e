import dataclasses
from typing import Any

import pytest
from omegaconf import OmegaConf

from neo.hardware.machine import AcceleratorSpec, HardwareSpec, Link, MemoryTier
from neo.hardware.spec import HardwareConfig
from neo.hardware.topology import link_between, node_of, ranks_of_node

GIB = 2**30


def config(**overrides: Any) -> HardwareConfig:
    """A sound machine with dotted overrides, as the command line would give them (``__`` for a dot)."""
    merged = OmegaConf.structured(HardwareConfig)
    sound = {
        "accelerators_per_node": 8,
        "accelerator.hbm.capacity": "40GiB",
        "accelerator.hbm.bandwidth": "1.5TB/s",
        "scale_up.bandwidth": "300GB/s",
        "scale_out.bandwidth": "200Gbps",
        "scale_out.latency": "5us",
    }
    for key, value in (sound | {name.replace("__", "."): value for name, value in overrides.items()}).items():
        OmegaConf.update(merged, key, value)
    made = OmegaConf.to_object(merged)
    assert isinstance(made, HardwareConfig)
    return made


def findings(**overrides: Any) -> list[str]:
    return [str(finding) for finding in config(**overrides).validate()]


def test_a_sound_machine_becomes_numbers_in_bytes_and_seconds() -> None:
    checked = config(node__ddr__capacity="1.5TB", node__ssd__capacity=0)
    assert checked.validate() == []
    spec = checked.to_spec()
    assert spec.world_size == spec.local_world_size == 8
    assert spec.accelerator.hbm == MemoryTier(40 * GIB, 1.5e12)
    assert spec.scale_out == Link(25e9, pytest.approx(5e-6))  # type: ignore[arg-type]
    assert spec.ddr.capacity_bytes == 1_500_000_000_000
    assert (spec.ssd.capacity_bytes, spec.ssd.usable_bytes) == (0, 0)
    assert spec.scale_up.latency_s is None
    assert dataclasses.is_dataclass(spec)
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.num_nodes = 2  # type: ignore[misc]


def test_r31_bandwidth_0_is_named() -> None:
    assert findings(accelerator__hbm__bandwidth="0B/s", scale_out__bandwidth="0") == [
        "accelerator.hbm.bandwidth: '0B/s' is impossible for an enabled tier; write a rate like 1.5TB/s, or switch the "
        "tier off with capacity=0",
        "scale_out.bandwidth: '0' is impossible for a link; write a rate like 25GB/s or 200Gbps",
    ]


def test_r31_a_tier_that_is_off_may_have_bandwidth_0() -> None:
    assert findings(node__ddr__capacity="0", node__ddr__bandwidth="0") == []


def test_r31_intra_node_slower_than_inter_node_is_named() -> None:
    assert findings(scale_up__bandwidth="10GB/s") == [
        "scale_up.bandwidth: '10GB/s' inside a node is slower than '200Gbps' between nodes "
        "(hardware.scale_out.bandwidth); both are per accelerator and direction; give scale_up at least the rate of "
        "scale_out"
    ]


def test_r31_an_enabled_tier_without_capacity_is_named() -> None:
    assert findings(accelerator__hbm__capacity=None, node__ddr__bandwidth="200GB/s") == [
        "accelerator.hbm.capacity: is null: an enabled tier needs a capacity; write a size like 40GiB, or 0 to switch "
        "the tier off (only hardware=local detects it)",
        "node.ddr.capacity: is null, but node.ddr.bandwidth '200GB/s' enables the tier; write a size like 1.5TB, or 0 "
        "to switch the tier off",
    ]


def test_every_mistake_is_found_at_once() -> None:
    wrong = findings(
        num_nodes=0,
        accelerators_per_node=-1,
        accelerator__hbm__capacity="40 gallons",
        accelerator__hbm__efficiency=1.5,
        accelerator__fp32_flops=0,
        accelerator__gemm_efficiency=0,
        scale_up__latency="5",
    )
    assert wrong == [
        "num_nodes: 0 is below the limit 1; write 1 to 65536",
        "accelerators_per_node: -1 is below the limit 1; write 1 to 65536",
        "accelerator.hbm.capacity: cannot read '40 gallons' as bytes; write it like 40GiB",
        "accelerator.fp32_flops: 0.0 is not a finite number above 0 FLOP/s; write null where it is not known",
        "accelerator.gemm_efficiency: 0.0 is outside (0, 1]; write null where it is not known",
        "scale_up.latency: cannot read '5' as seconds; write it like 5us",
    ]
    assert findings(accelerator__hbm__efficiency=1.5) == [
        "accelerator.hbm.efficiency: 1.5 is outside (0, 1]; write null where it is not known"
    ]


def test_accelerators_per_node_null_needs_detection() -> None:
    assert findings(accelerators_per_node=None) == [
        "accelerators_per_node: is null; write a number (only hardware=local detects it)"
    ]


def machine() -> HardwareSpec:
    return config(node__ddr__capacity="1600GB", node__ddr__bandwidth="200GB/s", num_nodes=2).to_spec()


@pytest.mark.parametrize(
    ("world_size", "num_nodes", "local_world_size"),
    [(1, 1, 1), (2, 1, 2), (8, 1, 8), (10, 2, 8), (16, 2, 8), (17, 3, 8)],
)
def test_scaling_fills_nodes_and_keeps_the_share_of_an_accelerator(
    world_size: int, num_nodes: int, local_world_size: int
) -> None:
    scaled = machine().scaled_to(world_size)
    assert (scaled.world_size, scaled.num_nodes, scaled.local_world_size) == (world_size, num_nodes, local_world_size)
    assert scaled.ddr.capacity_bytes == 200_000_000_000 * local_world_size
    assert scaled.ddr.bandwidth_bytes_per_s == pytest.approx(25e9 * local_world_size)
    assert scaled.accelerator == machine().accelerator


def test_scaling_below_1_is_refused() -> None:
    with pytest.raises(ValueError, match="world_size 0 is below the limit 1"):
        machine().scaled_to(0)


def test_labels() -> None:
    spec = dataclasses.replace(machine(), name="ZionEX")
    assert spec.label() == "16 ZionEX accelerators"
    assert spec.label(2) == "2 ZionEX accelerators"
    assert spec.scaled_to(1).label() == "1 ZionEX accelerator"


def test_processes_on_one_host_share_its_memory() -> None:
    host = HardwareSpec(
        "local", 1, 2, 2, AcceleratorSpec("local", hbm=MemoryTier(8)), shared_host_bytes=16, is_one_node=True
    )
    scaled = host.scaled_to(4)
    assert (scaled.num_nodes, scaled.local_world_size, scaled.accelerator.hbm.capacity_bytes) == (1, 4, 4)
    assert scaled.label() == "4 local CPU processes"
    assert scaled.scaled_to(1).label() == "1 local CPU process"
    assert scaled.scaled_to(1).accelerator.hbm.capacity_bytes == 16


def test_nodes_are_emulated_on_one_host_if_asked_for() -> None:
    host = HardwareSpec("local", 1, 1, 1, AcceleratorSpec("local", hbm=MemoryTier(16)), shared_host_bytes=16)
    scaled = host.scaled_to(2)
    assert (scaled.num_nodes, scaled.local_world_size, scaled.accelerator.hbm.capacity_bytes) == (2, 1, 8)


def test_topology_of_a_machine_whose_last_node_is_partly_used() -> None:
    scaled = machine().scaled_to(10)
    assert [node_of(rank, 8) for rank in (0, 7, 8, 9)] == [0, 0, 1, 1]
    assert list(ranks_of_node(1, 10, 8)) == [8, 9]
    assert list(ranks_of_node(2, 10, 8)) == []
    assert link_between(0, 7, scaled) == scaled.scale_up
    assert link_between(7, 8, scaled) == scaled.scale_out
    assert link_between(3, 3, scaled) is None
    with pytest.raises(ValueError, match=r"rank 10 is outside \[0, 10\)"):
        link_between(0, 10, scaled)
