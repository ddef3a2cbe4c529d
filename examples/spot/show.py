"""A training on spot machines: buy, train, notice, save, replace, resume, done, and what it cost.

It uses only the `argosy` command, so that users can type everything that is shown.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = "examples/spot"
BIN = Path(sys.executable).parent
ARGOSY = str(BIN / "argosy")
HOME = Path(os.environ.get("ARGOSY_HOME", Path.home() / ".argosy"))
OPERATOR = (
    "operator",
    *("--local", str(HOME / "local")),
    *("--catalog-path", f"{FOLDER}/catalog.csv"),
    *("--bootstrap-token-namespaces", "default"),
    *("--instance-poll", "1"),
)
PREEMPT_AT = "step  50"
SECONDS = 60.0


def main() -> int:
    os.chdir(Path(__file__).parents[2])
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    os.environ.pop("KUBECONFIG", None)
    if subprocess.run([ARGOSY, "status"], capture_output=True, check=False).returncode == 0:
        print("this needs a control plane of its own; `argosy down` first", file=sys.stderr)
        return 1
    show("A control plane on this machine, and a cloud whose VMs join it")
    run("up", "--nodes", "1", "--no-operator")
    port = free_port(8899)
    endpoint = f"http://127.0.0.1:{port}"
    cloud = ("rehearse", "spot", "--port", str(port), "--boot", "2s")
    operator = (*OPERATOR, "--gce-endpoint", endpoint)
    with background(cloud, "serving at"), background(operator, "became leader"):
        code = tell(endpoint)
    run("down")
    return code


def tell(endpoint: str) -> int:
    show("Buy two spot VMs")
    run("kubectl", "apply", "-f", f"{FOLDER}/machines.yaml")
    wait(lambda: states() == {"spot-1": "READY", "spot-2": "READY"}, "both VMs are nodes")
    run("kubectl", "get", "provisionedinstances")
    show("Train on them; one is taken back")
    if not train(endpoint):
        print("\nthe training ended before a VM was taken back", file=sys.stderr)
        return 1
    show("What happened, and what it cost")
    run("describe", "rented")
    wait(lambda: states()["spot-2"] == "TERMINATED", "the VM that was taken back is gone")
    run("kubectl", "get", "provisionedinstances")
    show("Give the VMs back")
    run("kubectl", "delete", "provisionedinstances", "--all", "--timeout", "60s")
    return 0


def train(endpoint: str) -> bool:
    """Run the job and show its output; take a VM back and buy another one when it has got going."""
    command = ["run", "--mount-cwd", f"{FOLDER}/run.yaml"]
    print(f"$ argosy {' '.join(command)}", flush=True)
    preempted = False
    with subprocess.Popen([ARGOSY, *command], stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        for line in following.stdout:
            print(line, end="", flush=True)
            if PREEMPT_AT in line and not preempted:
                preempted = True
                run("rehearse", "preempt", "spot-2", "--endpoint", endpoint)
                run("kubectl", "apply", "-f", f"{FOLDER}/replacement.yaml")
    if following.returncode != 0:
        sys.exit(following.returncode)
    return preempted


def states() -> dict[str, str]:
    """Return the state of each VM, `READY` if it runs and is a ready node."""
    found = subprocess.run(
        [ARGOSY, "kubectl", "get", "provisionedinstances", "-o", "json"],
        check=True,
        stdout=subprocess.PIPE,
    )
    items = json.loads(found.stdout)["items"]
    return {item["metadata"]["name"]: state(item.get("status", {})) for item in items}


def state(status) -> str:
    found, conditions = status.get("state", ""), status.get("conditions", [])
    ready = any((each["type"], each["status"]) == ("NodeReady", "True") for each in conditions)
    return "READY" if found == "RUNNING" and ready else found


@contextmanager
def background(arguments: tuple[str, ...], ready: str) -> Iterator[None]:
    """Run an argosy command in the background, from when its output shows that it is ready."""
    print(f"$ argosy {' '.join(arguments)} &", flush=True)
    log = HOME / "local" / f"quickstart-{arguments[0]}.log"
    with log.open("w") as output:
        process = subprocess.Popen([ARGOSY, *arguments], stdout=output, stderr=output)
        try:
            wait(lambda: ready in log.read_text() or process.poll() is not None, f"{arguments[0]} is ready")
            if process.poll() is not None:
                sys.exit(log.read_text())
            yield
        finally:
            process.terminate()
            process.wait(30)


def free_port(wanted: int) -> int:
    """Return the wanted port, or another one if it is in use."""
    for port in (wanted, 0):
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(listener.getsockname()[1])
    sys.exit("there is no free port")


def wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"waited {SECONDS:g} s in vain until {what}")
        time.sleep(0.2)


def show(title: str) -> None:
    print(f"\n\033[1m▌ {title}\033[0m" if sys.stdout.isatty() else f"\n== {title}", flush=True)


def run(*arguments: str) -> None:
    """Print an argosy command and run it."""
    print(f"$ argosy {' '.join(arguments)}", flush=True)
    code = subprocess.run([ARGOSY, *arguments], check=False).returncode
    if code != 0:
        sys.exit(code)


if __name__ == "__main__":
    sys.exit(main())
