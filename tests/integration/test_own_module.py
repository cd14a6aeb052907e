"""The example of a user's own LightningModule, as users start it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs/examples/own_lightning_module.py"


@pytest.mark.slow
def test_the_example_trains_on_two_ranks_with_one_loss_however_it_is_started(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    told = []
    for launcher in ([], ["-m", "torch.distributed.run", "--nproc-per-node", "2"]):
        command = [sys.executable, *launcher, str(EXAMPLE)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        told.append(re.findall("trained on 2 ranks, loss 0.[0-9]{4}", done.stdout))
        assert len(told[-1]) == 1
        for noise in ("Tip", "litlogger", "deprecated", "Params", "GPU available"):
            assert noise not in done.stdout + done.stderr
    assert told[0] == told[1]


def test_the_example_has_at_most_sixty_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 60


def test_the_table_maker_says_what_it_wrote(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "docs/examples/make_table.py"), "clicks"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [
        "wrote 60,000 samples: clicks/train.parquet, and without tags clicks/train.csv",
        "wrote 10,000 samples: clicks/val.parquet, and without tags clicks/val.csv",
    ]
    assert (tmp_path / "clicks" / "val.parquet").is_file()
