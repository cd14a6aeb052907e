"""A tiny worker for the tests of the launcher: ``python -m launch_worker RUN_DIR PARENT_PID``, steered by a file."""

import json
import os
import signal
import sys
import time
from pathlib import Path

from neo.launch.worker import main


def body(run_dir: Path) -> None:
    """Join a gloo group and do what ``script.json`` says for this rank."""
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    (run_dir / f"pid_{rank}").write_text(str(os.getpid()))
    script = json.loads((run_dir / "script.json").read_text())
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    print(f"rank {rank} sees {int(total)} ranks, {os.environ['OMP_NUM_THREADS']} threads", flush=True)
    action = script.get(str(rank), "end")
    if action == "raise":
        raise ValueError(f"table 'user_id' is on fire on rank {rank}")
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "exit":
        os._exit(7)
    if action == "wait":
        dist.all_reduce(torch.ones(1))
    if action == "leave":  # as a training does that is asked to end, once it has saved
        left: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, frame: left.append(number))
        (run_dir / f"listens_{rank}").touch()
        while not left:
            time.sleep(0.05)
        (run_dir / f"left_{rank}").touch()
    if action == "sleep":
        time.sleep(120)


if __name__ == "__main__":
    main(sys.argv[1:], body)
