"""The code of docs/extending.md, run as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


def test_the_examples_pass_the_suites(tmp_path: Path) -> None:
    files = dict(re.findall(r"```python (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
    assert list(files) == [
        "plugin.py",
        "my_model.py",
        "my_backend.py",
        "my_codec.py",
        "my_optimizer.py",
        "test_mine.py",
    ]
    for name, code in files.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "test_mine.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


def test_the_sparse_optimizer_moves_rows() -> None:
    from neo.optim.spec import SparseOptimizerSpec

    (code,) = re.findall(r"```python my_optimizer\.py\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, type] = {}
    exec(code, names)
    weight = torch.ones(3, 2)
    optimizer = names["SignSGD"](SparseOptimizerSpec("sgd", lr=0.5))
    optimizer.update(weight, {}, torch.tensor([1]), torch.tensor([[9.0, -0.1]]), 0.5, 1)
    assert weight.tolist() == [[1.0, 1.0], [0.5, 1.5], [1.0, 1.0]]
