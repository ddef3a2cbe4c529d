"""What the helper costs at its start, in every pod: CPU time, over that of a Python that does nothing.

The least of several rounds counts. Each command gets as far as its first question to the operator.
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import argosy.helper
from argosy.operator.endpoint_credentials import make_credentials
from bench.figures import Figure

SCRIPT = Path(argosy.helper.__file__).with_name("__main__.py")
NOWHERE = "https://127.0.0.1:1"
ROUNDS = 10


def measure() -> Iterator[Figure]:
    authority = make_credentials(["localhost"], datetime.now(UTC)).ca
    pod = {"ARGOSY_URL": NOWHERE, "ARGOSY_TOKEN": "t", "ARGOSY_NAMESPACE": "default", "ARGOSY_JOB": "job"}
    environment = {"PATH": os.environ["PATH"], **pod, "ARES_TOKEN": "t", "ARGOSY_CA": authority}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        copy = ("remote-exec", "--to", folder, "--kubectl", "/bin/true")
        wait = ("wait", "worker=Running", "--deadline", "0.01")
        cache = ("cache", "--key", "ns.job", "--cacheURI", NOWHERE, "--max-retries", "0", "--roles", "a")
        commands: dict[str, Sequence[str]] = {
            "nothing": ("-c", "pass"),
            "helper_copy_ratio": (str(SCRIPT), *copy),
            "helper_wait_ratio": (str(SCRIPT), *wait),
            "initializer_ratio": (str(SCRIPT), *cache),
        }
        least = dict.fromkeys(commands, float("inf"))
        for _ in range(ROUNDS):
            for name, command in commands.items():
                least[name] = min(least[name], _cpu_seconds(command, environment))
    bare = least.pop("nothing")
    for name, target in (("helper_copy_ratio", 5.0), ("helper_wait_ratio", 8.0), ("initializer_ratio", 8.0)):
        yield Figure(name, least[name] / bare, "", 1.0, "CPU of a Python that does nothing", target)


def _cpu_seconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-I", *command], env=dict(environment), capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
