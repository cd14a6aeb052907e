"""Train a sharded recommendation model: ``python train.py [key=value ...]``; the same as ``neo train``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "src"))  # A checkout runs its own source.

from neo.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
