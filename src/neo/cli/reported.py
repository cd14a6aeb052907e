"""From what ends a command to a message and an exit code, for the commands that Hydra does not run."""

import sys
import traceback
from collections.abc import Callable

from neo.errors import NeoError


def reported(action: Callable[[], int]) -> int:
    """Run ``action`` and return its exit code; print whatever ends it and return the code that this means.

    Args:
        action: The command.

    Returns:
        0 done; 2 arguments or configuration are wrong; 3 no plan fits; 1 anything else.
    """
    try:
        return action()
    except NeoError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    except OSError as error:
        named = f"'{error.filename}': " if error.filename is not None else ""
        print(f"{named}{error.strerror or error}", file=sys.stderr)
    except Exception:
        traceback.print_exc()
    return 1
