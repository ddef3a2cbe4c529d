"""The quickstart: starts a control plane, runs a training, kills a worker and shows how the job recovers.

It uses only the `argosy` command, so that users can type everything that is shown.
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
ARGOSY = str(BIN / "argosy")
CHECKPOINT = Path(".argosy/quickstart/checkpoint.npz")
VICTIM = "quickstart-worker-1"
MPIEXEC_NOTE = (
    "── mpiexec reports the lost worker as failed assertions (`assert (!closed) failed`): "
    "expected, the next attempt follows ──"
)


def main() -> int:
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    os.environ.pop("KUBECONFIG", None)
    show("A control plane on this machine with three nodes")
    if subprocess.run([ARGOSY, "status"], capture_output=True, check=False).returncode != 0:
        run("up", "--nodes", "3")
    else:
        print("already running")
    subprocess.run([ARGOSY, "rm", "quickstart"], capture_output=True, check=False)
    CHECKPOINT.unlink(missing_ok=True)
    show("Three workers train together; one of them is killed")
    killed = threading.Event()
    threading.Thread(target=kill_a_worker, args=(killed,), daemon=True).start()
    outcome = run("run", "--mount-cwd", str(HERE / "run.yaml"), check=False)
    if outcome != 0:
        print("\nthe job did not succeed; `argosy describe quickstart` shows why", file=sys.stderr)
        return outcome
    if not killed.is_set():
        print("\nthe job ended before a worker could be killed", file=sys.stderr)
        return 1
    run("ps")
    show("The control plane is still running. Next steps:")
    print(
        f"  source {BIN / 'activate'}\n"
        "  argosy describe quickstart                   phases, restarts and events\n"
        "  argosy kubectl get pods,trainingruns -A      any kubectl command\n"
        "  argosy run --replicas 2 -- hostname          any command as a job\n"
        "  argosy run --mount-cwd examples/…/run.yaml   further examples\n"
        "  argosy down                                  stop everything\n"
    )
    return 0


def kill_a_worker(killed: threading.Event) -> None:
    """Kill all processes of one worker, like a crash, as soon as there is a checkpoint."""
    while not CHECKPOINT.exists():
        time.sleep(0.1)
    print(f"── killing every process in {VICTIM} ──\n{MPIEXEC_NOTE}", flush=True)
    command = [ARGOSY, "kubectl", "exec", VICTIM, "--", "sh", "-c", "kill -9 -1"]
    subprocess.run(command, capture_output=True, check=False)
    killed.set()


def show(title: str) -> None:
    print(f"\n\033[1m▌ {title}\033[0m" if sys.stdout.isatty() else f"\n== {title}", flush=True)


def run(*arguments: str, check: bool = True) -> int:
    """Print an argosy command and run it."""
    print(f"$ argosy {' '.join(arguments)}", flush=True)
    code = subprocess.run([ARGOSY, *arguments], check=False).returncode
    if check and code != 0:
        sys.exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
