"""The whole examination: host, torch, kernels, lookups, exchange. Torch-free; see ``probes`` for what loads torch."""

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from neo.config.devices import num_gpus
from neo.config.plugins import load_plugins
from neo.doctor.check import Check, State
from neo.doctor.host import host_checks
from neo.doctor.subprocesses import run_probe
from neo.errors import NeoError
from neo.ops.spec import POOLED_LOOKUPS, TORCH_FBGEMM_PAIRS, Device, capability, fbgemm_status
from neo.versions import installed_versions

FBGEMM_MODULE = "fbgemm_gpu"
TORCH_FIX = "reinstall torch as PyTorch's install page says for this platform"
EXCHANGE_FIX = (
    "let processes of this host reach each other: name a network interface in GLOO_SOCKET_IFNAME (for nccl: "
    "NCCL_SOCKET_IFNAME), and look at /etc/hosts and the firewall"
)


def examine(folder: Path, *, timeout_s: float) -> list[Check]:
    """Return every check, in the order in which they build on each other.

    Args:
        folder: Where runs would be written.
        timeout_s: Limit of each check that runs in a process of its own.
    """
    found = host_checks(folder, os.environ)
    gpus = num_gpus()
    torch = run_probe("torch", ["torch", str(gpus)], fix=TORCH_FIX, timeout_s=timeout_s)
    found.append(torch)
    if torch.state is State.FAIL and not torch.found.startswith("torch "):
        return found  # nothing that follows can be tried
    jobs: list[Callable[[], list[Check]]] = [
        lambda: _kernels(gpus, timeout_s),
        lambda: [_exchange("gloo", 2, timeout_s)],
    ]
    if gpus > 0 and torch.state is not State.FAIL:
        jobs.append(lambda: [_exchange("nccl", min(gpus, 2), timeout_s)])
    with ThreadPoolExecutor(len(jobs)) as pool:
        for checks in [job.result() for job in [pool.submit(job) for job in jobs]]:
            found += checks
    return found


def fbgemm_check(timeout_s: float) -> Check:
    """Look at the pair of torch and FBGEMM: by their versions, then by importing them together."""
    status = fbgemm_status()
    pairs = " or ".join(f"torch {torch} with fbgemm {fbgemm}" for torch, fbgemm in TORCH_FBGEMM_PAIRS.items())
    advice = f"install a pair that is known to work ({pairs}): pip install 'neo-zionex[cpu]', or [cuda] with GPUs"
    if not status.usable:
        absent = "is not installed" in status.reason
        state = State.WARN if absent else State.FAIL
        effect = "; ops=auto takes the slower reference backend" if absent else ""
        return Check("torch and fbgemm", state, status.reason.split("; ")[0] + effect, advice)
    check = run_probe("torch and fbgemm", ["import", FBGEMM_MODULE], fix=advice, timeout_s=timeout_s)
    return _known_pair() if check.state is State.OK else check


def _known_pair() -> Check:
    versions = installed_versions()
    fbgemm = next((f"{name} {version}" for name, version in versions.items() if name.startswith("fbgemm")), "fbgemm")
    found = f"torch {versions.get('torch', '?')} with {fbgemm}, a known pair; both load"
    return Check("torch and fbgemm", State.OK, found)


def _kernels(gpus: int, timeout_s: float) -> list[Check]:
    """Check a lookup of every backend on every device that there is, and FBGEMM's pair with torch."""
    try:
        load_plugins()
    except NeoError:
        return [fbgemm_check(timeout_s)]  # the plugins' own check says why
    lookups: dict[str, list[Check]] = {}
    for backend in POOLED_LOOKUPS.names():
        if backend == "fbgemm" and not fbgemm_status().usable:
            continue
        devices = [Device.CPU, *([Device.CUDA] if gpus > 0 else [])]
        there = [device for device in devices if capability(backend, device) is not None]
        lookups[backend] = [_lookup(backend, device, timeout_s) for device in there]
    works = any(check.state is State.OK for check in lookups.get("fbgemm", ()))
    pair = _known_pair() if works else fbgemm_check(timeout_s)
    if pair.state is not State.OK:
        lookups.pop("fbgemm", None)  # one cause is told once
    return [pair, *(check for checks in lookups.values() for check in checks)]


def _lookup(backend: str, device: Device, timeout_s: float) -> Check:
    fix = TORCH_FIX if backend == "reference" else f"use ops=reference, or update the package of '{backend}'"
    return run_probe(f"lookup {backend} on {device}", ["lookup", backend, device.value], fix=fix, timeout_s=timeout_s)


def _exchange(backend: str, world_size: int, timeout_s: float) -> Check:
    name = f"all-to-all {backend}"
    with tempfile.TemporaryDirectory(prefix="neo-doctor-") as folder, ThreadPoolExecutor(world_size) as pool:
        ranks = [
            pool.submit(
                run_probe,
                name,
                ["exchange", backend, str(rank), str(world_size), f"{folder}/store"],
                fix=EXCHANGE_FIX,
                timeout_s=timeout_s,
            )
            for rank in range(world_size)
        ]
        checks = [rank.result() for rank in ranks]
    return next((check for check in checks if check.state is not State.OK), checks[0])
