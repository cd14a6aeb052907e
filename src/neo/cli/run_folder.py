"""The files that a command writes into its run folder."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neo.launch.failures import FOLDER
from neo.launch.summary import PROGRESS, SUMMARY

_WRITTEN = ("resolved.yaml", "plan.json", "planned.json", "estimate.json", PROGRESS, SUMMARY)
_FOLDERS = ("data_schema", FOLDER)


def clear(run_dir: Path) -> None:
    """Remove what an earlier run in the same folder wrote, so that nothing old is taken for new."""
    for name in _WRITTEN:
        (run_dir / name).unlink(missing_ok=True)
    for name in _FOLDERS:
        shutil.rmtree(run_dir / name, ignore_errors=True)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` as JSON for people."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
