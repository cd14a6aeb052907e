"""Plan where every embedding table goes: ``python plan.py [key=value ...]``; the same as ``neo plan``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "src"))  # A checkout runs its own source.

from neo.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["plan", *sys.argv[1:]]))
