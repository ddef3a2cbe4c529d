"""The quickstart's sequel: a training loses a node by notice, continues with fewer workers, and grows back.

It uses only the `argosy` command, so that users can type everything that is shown.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

JOB = "examples/elastic/run.yaml"
BIN = Path(sys.executable).parent
ARGOSY = str(BIN / "argosy")
NODES = 3
EVENTS = (
    *("--field-selector", "involvedObject.name=elastic"),
    "--sort-by=.lastTimestamp",
    *("-o", "custom-columns=REASON:.reason,MESSAGE:.message"),
)
NOTICE = ("--in", "10s", "--back-after", "10s")


def main() -> int:
    os.chdir(Path(__file__).parents[2])
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    os.environ.pop("KUBECONFIG", None)
    show(f"A control plane on this machine with {NODES} nodes")
    if subprocess.run([ARGOSY, "status"], capture_output=True, check=False).returncode != 0:
        run("up", "--nodes", str(NODES))
    else:
        print("already running")
    if len(ready_nodes()) != NODES:
        print(f"this needs {NODES} nodes that are Ready; `argosy down` first", file=sys.stderr)
        return 1
    subprocess.run([ARGOSY, "rm", "elastic"], capture_output=True, check=False)
    show("A worker on each node; one node is reclaimed and returns")
    if not has_grown_back(train()):
        print("\nthe training ended before it had grown back; see `argosy describe elastic`", file=sys.stderr)
        return 1
    run("ps")
    show("What happened, as events of the job")
    run("kubectl", "get", "events", *EVENTS)
    show("`argosy down` stops everything")
    return 0


def train() -> list[int]:
    """Run the job and show its output; take a node away when all workers have joined.

    Returns the numbers of workers in the order in which they trained.
    """
    command = ["run", "--mount-cwd", JOB]
    print(f"$ argosy {' '.join(command)}", flush=True)
    sizes: list[int] = []
    with subprocess.Popen([ARGOSY, *command], stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        for line in following.stdout:
            print(line, end="", flush=True)
            _, found, size = line.rpartition("  workers ")
            if not found:
                continue
            if int(size) == NODES and NODES not in sizes:
                run("rehearse", "reclaim", node_to_reclaim(), *NOTICE)
            sizes.append(int(size))
    if following.returncode != 0:
        sys.exit(following.returncode)
    return sizes


def has_grown_back(sizes: list[int]) -> bool:
    """Return True if there were all workers, then fewer, and all of them at the end."""
    return NODES in sizes and sizes[-1] == NODES and min(sizes[sizes.index(NODES) :]) < NODES


def node_to_reclaim() -> str:
    """Return the node of a worker that the server is not on."""
    pods = listed("kubectl", "get", "pods", "-l", "argosy.dev/job=elastic", "-o", "json")["items"]
    nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}
    server = nodes.pop("elastic-server-0")
    return next(node for name, node in sorted(nodes.items()) if node != server)


def ready_nodes() -> list[str]:
    return [node["name"] for node in listed("nodes", "-o", "json") if node["status"] == "Ready"]


def listed(*arguments: str):
    """Return what an argosy command prints as JSON."""
    return json.loads(subprocess.run([ARGOSY, *arguments], check=True, stdout=subprocess.PIPE).stdout)


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
