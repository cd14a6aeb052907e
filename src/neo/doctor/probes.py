"""The checks that load torch and kernels; each runs in a process of its own, which a broken library may take down.

``python -m neo.doctor.probes NAME ...`` prints one ``Check`` as its last line.
"""

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

from neo.comms.collectives import TorchCollectives
from neo.config.plugins import load_plugins
from neo.doctor.check import Check, State
from neo.ops.pooled_lookup import LocalTable
from neo.ops.spec import POOLED_LOOKUPS, Device, capability
from neo.optim.spec import SparseOptimizerSpec

_LEARNING_RATE = 0.5
_EXCHANGE_TIMEOUT_S = 30
_ELEMENTS = 1_000_000  # 4 MB from each rank
_WIDTH = 8
_TOLERANCE = 1e-6  # values of about 1, a few float32 additions


def torch_probe(num_gpus: str) -> Check:
    """Look at torch, and whether it reaches the GPUs that the driver lists.

    Args:
        num_gpus: How many the driver lists.
    """
    built = "CPU build" if torch.version.cuda is None else f"CUDA {torch.version.cuda}"
    found = f"torch {torch.__version__} ({built})"
    reached = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if reached < int(num_gpus):
        fix = "install a torch built for CUDA, as PyTorch's install page says, that fits the driver"
        return Check("torch", State.FAIL, f"{found} reaches {reached} of {num_gpus} GPUs that the driver lists", fix)
    if reached == 0:
        return Check("torch", State.OK, f"{found}, no GPU: runs use CPU processes")
    names = sorted({torch.cuda.get_device_name(index) for index in range(reached)})
    return Check("torch", State.OK, f"{found}, {reached} x {' and '.join(names)}")


def import_probe(module: str) -> Check:
    """Import a module, which fails or crashes if its libraries were built for another torch."""
    __import__(module)
    return Check(module, State.OK, f"{module} loads beside torch {torch.__version__}")


def lookup_probe(backend: str, device: str) -> Check:
    """Look up two bags, step backward, and compare with plain torch.

    Args:
        backend: A registered ops backend.
        device: ``cpu`` or ``cuda``.
    """
    load_plugins()
    able = capability(backend, Device(device))
    assert able is not None
    optimizer = "sgd" if "sgd" in able.optimizers else min(able.optimizers)
    place, name = torch.device(device), f"lookup {backend} on {device}"
    op = POOLED_LOOKUPS.get(backend)(
        [LocalTable("doctor", 5, _WIDTH)],
        slots=[0],
        optimizer=SparseOptimizerSpec(optimizer, lr=_LEARNING_RATE),
        device=place,
    )
    before = torch.randn(5, _WIDTH, generator=torch.Generator().manual_seed(0))
    op.weights()[0].copy_(before)
    ids, offsets = torch.tensor([1, 3, 3, 4], device=place), torch.tensor([0, 3, 4], device=place)
    output = op(ids, offsets, None)
    expected = torch.stack((before[1] + 2 * before[3], before[4]))
    off = float((output.detach().cpu() - expected).abs().max())
    output.backward(torch.ones_like(output))
    if optimizer == "sgd":
        moved = before - _LEARNING_RATE * torch.tensor([0.0, 1.0, 0.0, 2.0, 1.0])[:, None]
        off = max(off, float((op.weights()[0].detach().cpu() - moved).abs().max()))
    what = "lookup and update" if optimizer == "sgd" else "lookup"
    if off > _TOLERANCE:
        fix = "use ops=reference" if backend != "reference" else "reinstall torch"
        return Check(name, State.FAIL, f"{what} differ from plain torch by {off:.1e}", fix)
    return Check(name, State.OK, f"{what} equal plain torch within {_TOLERANCE:.0e}")


def exchange_probe(backend: str, rank: str, world_size: str, store: str) -> Check:
    """Do one all-to-all with unequal parts among the ranks of this host and check every element.

    Args:
        backend: ``gloo`` or ``nccl``.
        rank: This rank.
        world_size: Ranks.
        store: A file that the ranks meet at.
    """
    place, count = int(rank), int(world_size)
    device = torch.device("cuda", place) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=place,
        world_size=count,
        timeout=timedelta(seconds=_EXCHANGE_TIMEOUT_S),
    )
    collectives = TorchCollectives()
    part = _ELEMENTS // count
    sent = [part + peer for peer in range(count)]
    received = [part + place] * count
    source = torch.full((sum(sent),), float(place), device=device)
    output = torch.empty(sum(received), device=device)
    collectives.barrier()
    began = time.perf_counter()
    collectives.all_to_all(output, source, received, sent).wait()
    arrived = output.cpu()
    wall_s = time.perf_counter() - began
    expected = torch.cat([torch.full((part + place,), float(peer)) for peer in range(count)])
    equal = torch.equal(arrived, expected)
    collectives.barrier()
    dist.destroy_process_group()
    name = f"all-to-all {backend}"
    if not equal:
        return Check(name, State.FAIL, f"rank {place} received wrong values", "reinstall torch")
    return Check(name, State.OK, f"{count} processes, {sum(sent) * 4 / 1e6:.1f} MB each in {wall_s * 1e3:.1f} ms")


_PROBES: dict[str, Callable[..., Check]] = {
    "torch": torch_probe,
    "import": import_probe,
    "lookup": lookup_probe,
    "exchange": exchange_probe,
}


def main(arguments: list[str]) -> None:
    """Run one probe and print what it found."""
    check = _PROBES[arguments[0]](*arguments[1:])
    print(check.to_json(), flush=True)
    os._exit(0)  # what a library does when the interpreter ends is not what is looked at


if __name__ == "__main__":
    main(sys.argv[1:])
