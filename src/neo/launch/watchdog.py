"""Ends a process whose parent is gone.

The engine's workers live in sessions of their own, so that neither a killed launcher nor a closed terminal ends
them: each process looks at its parent and leaves when it has another one.
"""

import os
import threading
import time

_INTERVAL_S = 0.5
ORPHANED_EXIT_CODE = 1


def start_watchdog(parent_pid: int) -> None:
    """End this process within about half a second after ``parent_pid`` is no longer its parent."""
    threading.Thread(target=_watch, args=(parent_pid,), name="watchdog", daemon=True).start()


def _watch(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(_INTERVAL_S)
    os._exit(ORPHANED_EXIT_CODE)
