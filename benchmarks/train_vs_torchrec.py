"""Training steps of neo against TorchRec in one run: the two take turns, so that a drifting machine hits both.

Prints both ratios (TorchRec's milliseconds over neo's; above 1 neo is faster) and exits 1 if one is under 1.0.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

from workload import CASES

HERE = Path(__file__).resolve().parent
WORLD_SIZE = 2


def measure(python: str, script: str, case: str, steps: int) -> tuple[float, str]:
    """Run one side with torchrun and return its median milliseconds per step and its versions."""
    command = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORLD_SIZE}"]
    command += [str(HERE / script), "--case", case, "--steps", str(steps)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{script} failed:\n{done.stderr[-3000:]}")
    versions, milliseconds = done.stdout.strip().splitlines()[-2:]
    return float(milliseconds), versions


def main() -> int:
    """Run all cases; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", required=True, help="the python of the virtual environment with TorchRec")
    parser.add_argument("--rounds", type=int, default=5, help="how often the two take turns")
    parser.add_argument("--steps", type=int, default=30, help="counted steps of each turn")
    parser.add_argument("--case", choices=sorted(CASES), action="append", help="only this case (may be repeated)")
    arguments = parser.parse_args()
    slower = False
    print(f"W={WORLD_SIZE}, one thread per process, fp32, table-wise; {platform.machine()}, {os.cpu_count()} cores")
    for name in arguments.case or CASES:
        ratios, ours, theirs = [], [], []
        for _ in range(arguments.rounds):
            peer_ms, peer_versions = measure(arguments.peer_python, "torchrec_rank.py", name, arguments.steps)
            own_ms, own_versions = measure(sys.executable, "neo_rank.py", name, arguments.steps)
            ratios.append(peer_ms / own_ms)
            ours.append(own_ms)
            theirs.append(peer_ms)
        ratio = statistics.median(ratios)
        slower |= ratio < 1.0
        samples = CASES[name].global_batch_size
        print(CASES[name])
        print(f"  {own_versions}: {min(ours):.1f} to {max(ours):.1f} ms/step")
        print(f"  {peer_versions}: {min(theirs):.1f} to {max(theirs):.1f} ms/step")
        own_rate, peer_rate = samples / statistics.median(ours), samples / statistics.median(theirs)
        print(
            f"  neo / TorchRec: {ratio:.2f}x of its samples/s (median of {len(ratios)} turns, "
            f"{min(ratios):.2f} to {max(ratios):.2f}; {own_rate:.1f} k against {peer_rate:.1f} k samples/s)"
        )
    return int(slower)


if __name__ == "__main__":
    raise SystemExit(main())
