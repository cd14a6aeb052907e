"""The example of a user's own LightningModule, as users start it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs/examples/own_lightning_module.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher", [[sys.executable], [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]]
)
def test_the_example_trains_on_two_ranks(launcher: list[str], tmp_path: Path) -> None:
    command = [*launcher, str(EXAMPLE)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained on 2 ranks, loss 0.") == 1


def test_the_example_has_at_most_sixty_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 60
