"""Imports a component while its keys are still being generated, then runs it.

`python -m argosy.local.deferred_start MODULE ARGUMENT...`. Importing takes longer than generating keys, so a
control plane that does both at once is ready sooner. The component's `main` runs once the state folder is
marked as prepared.
"""

import importlib
import sys
import time
from pathlib import Path

from argosy.local.state import State

_PREPARED_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.005


def main() -> int:
    module, arguments = sys.argv[1], sys.argv[2:]
    component = importlib.import_module(f"{module}.__main__")
    prepared = State(Path(arguments[arguments.index("--state") + 1])).prepared
    deadline = time.monotonic() + _PREPARED_TIMEOUT_SECONDS
    while not prepared.exists():
        if time.monotonic() > deadline:
            sys.stderr.write(
                f"{prepared} does not exist: `argosy up` may have been killed while it created keys\n"
            )
            return 1
        time.sleep(_POLL_SECONDS)
    sys.argv = [module, *arguments]
    code = component.main()
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
