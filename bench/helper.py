"""The CPU time of the helper's start in every pod, relative to a Python process that does nothing.

The cheapest of several rounds counts. Each command runs up to its first request to the operator.
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
UNREACHABLE_URL = "https://127.0.0.1:1"
ROUNDS = 10


def measure() -> Iterator[Figure]:
    authority = make_credentials(["localhost"], datetime.now(UTC)).ca
    pod = {
        "ARGOSY_URL": UNREACHABLE_URL,
        "ARGOSY_TOKEN": "t",
        "ARGOSY_NAMESPACE": "default",
        "ARGOSY_JOB": "job",
    }
    environment = {"PATH": os.environ["PATH"], **pod, "ARES_TOKEN": "t", "ARGOSY_CA": authority}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        copy = ("remote-exec", "--to", folder, "--kubectl", "/bin/true")
        wait = ("wait", "worker=Running", "--deadline", "0.01")
        cache = (
            "cache",
            "--key",
            "ns.job",
            "--cacheURI",
            UNREACHABLE_URL,
            "--max-retries",
            "0",
            "--roles",
            "a",
        )
        commands: dict[str, Sequence[str]] = {
            "baseline": ("-c", "pass"),
            "helper_copy_ratio": (str(SCRIPT), *copy),
            "helper_wait_ratio": (str(SCRIPT), *wait),
            "initializer_ratio": (str(SCRIPT), *cache),
        }
        cheapest = dict.fromkeys(commands, float("inf"))
        for _ in range(ROUNDS):
            for name, command in commands.items():
                cheapest[name] = min(cheapest[name], _cpu_seconds(command, environment))
    baseline = cheapest.pop("baseline")
    for name, target in (("helper_copy_ratio", 5.0), ("helper_wait_ratio", 8.0), ("initializer_ratio", 8.0)):
        yield Figure(
            name, cheapest[name] / baseline, "", 1.0, "CPU time of a Python process that does nothing", target
        )


def _cpu_seconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-I", *command], env=dict(environment), capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
