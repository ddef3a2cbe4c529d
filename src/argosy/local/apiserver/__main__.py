"""`python -m argosy.local.apiserver --state DIR --port N`: run the API server of a local control plane."""

import argparse
import gc
import logging
import sqlite3
import sys
from pathlib import Path

from argosy.engine.loop import run
from argosy.local.apiserver.server import serve
from argosy.local.apiserver.store import Limits


def main() -> int:
    """Parse the arguments and serve until SIGTERM."""
    defaults = Limits()
    parser = argparse.ArgumentParser(prog="argosy.local.apiserver")
    parser.add_argument("--state", type=Path, required=True, help="the state folder of the control plane")
    parser.add_argument("--port", type=int, required=True, help="TCP port on loopback")
    parser.add_argument("--history-count", type=int, default=defaults.events, help="events kept for watches")
    parser.add_argument(
        "--history-seconds", type=float, default=defaults.seconds, help="how long events are kept"
    )
    options = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    gc.set_threshold(50_000, 20, 100)
    sys.setswitchinterval(0.001)  # responses wait for the writing thread
    limits = Limits(events=options.history_count, seconds=options.history_seconds)
    try:
        run(serve(options.state, options.port, limits))
    except OSError as error:
        sys.stderr.write(f"cannot serve {options.state} on port {options.port}: {error}\n")
        return 1
    except sqlite3.Error as error:
        sys.stderr.write(f"{options.state}/store.db: {error}; is another server using it?\n")
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
