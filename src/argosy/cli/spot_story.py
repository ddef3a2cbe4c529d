"""`argosy rehearse spot --story`: a training on spot machines, from the purchase to what it cost.

It only types `argosy` commands, so that users can type everything that is shown. Its files are those of
`examples/spot`; the wheel contains them too.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from argosy.local.state import State

FOLDER = "examples/spot"
POOL, RUN = "machinepool/spot", "rented"
PREEMPT_AT = "step  50"
SECONDS = 60.0


def tell_story(port: int, serve_options: Sequence[str]) -> int:
    """Show the whole story, and return the exit code."""
    if importlib.util.find_spec("numpy") is None:
        raise click.ClickException(f"the training needs NumPy: {sys.executable} -m pip install numpy")
    state = State.of().folder
    os.chdir(_root())
    story = Story(_argosy(), state)
    os.environ["PATH"] = f"{story.argosy.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    os.environ.pop("KUBECONFIG", None)
    return story.tell(port, serve_options)


class Story:
    """Types commands, and waits for what they lead to."""

    def __init__(self, argosy: Path, state: Path) -> None:
        self.argosy = argosy
        self.state = state
        """Folder of the local control plane. It is deleted at the end, unless it was there before."""

    def tell(self, port: int, serve_options: Sequence[str]) -> int:
        """Start a control plane and a cloud, and train on machines of the cloud."""
        status = subprocess.run([self.argosy, "status"], capture_output=True, check=False)
        if status.returncode == 0:
            raise click.ClickException("this needs a control plane of its own; `argosy down` first")
        down = ("down",) if self.state.exists() else ("down", "--delete")
        _show("A control plane on this machine, and a cloud whose VMs join it")
        self._run("up", "--nodes", "1", "--no-operator")
        port = _free_port(port)
        endpoint = f"http://127.0.0.1:{port}"
        cloud = ("rehearse", "spot", "--port", str(port), *serve_options)
        operator = (
            *("operator", "--local", str(self.state)),
            *("--catalog-path", f"{FOLDER}/catalog.csv"),
            *("--bootstrap-token-namespaces", "default"),
            *("--instance-poll", "1", "--gce-endpoint", endpoint),
        )
        try:
            with self._background(cloud, "serving at"), self._background(operator, "became leader"):
                return self._rent_and_train(endpoint)
        finally:
            self._run(*down)

    def _rent_and_train(self, endpoint: str) -> int:
        _show("Keep two spot VMs")
        self._run("kubectl", "apply", "-f", f"{FOLDER}/machines.yaml")
        self._run("kubectl", "wait", POOL, "--for", "condition=Ready", "--timeout", "60s")
        states = ("get", "provisionedinstances", "-o", "jsonpath={.items[*].status.state}")
        _wait(lambda: set(self._ask(*states).split()) == {"RUNNING"}, "both VMs are RUNNING")
        self._run("kubectl", "get", "machinepools")
        self._run("kubectl", "get", "provisionedinstances")
        _show("Train on them; one is taken back")
        lost = self._train(endpoint)
        if not lost:
            click.echo("\nthe training ended before a VM was taken back", err=True)
            return 1
        _show("What happened, and what it cost")
        self._run("describe", RUN)
        _wait(lambda: lost not in self._ask("get", "provisionedinstances", "-o", "name"), f"{lost} is gone")
        columns = "custom-columns=REASON:.reason,MESSAGE:.message"
        events = ("get", "events", "--field-selector", "involvedObject.kind=MachinePool")
        self._run("kubectl", *events, "--sort-by", ".firstTimestamp", "-o", columns)
        self._run("kubectl", "get", "machinepools")
        _show("Give the VMs back")
        self._run("rm", RUN)
        self._run("kubectl", "delete", POOL, "--timeout", "60s")
        return 0

    def _train(self, endpoint: str) -> str:
        """Run the job and show its output; take a VM back when it has got going, and return its name."""
        command = ("run", "--mount-cwd", f"{FOLDER}/run.yaml")
        click.echo(f"$ argosy {' '.join(command)}")
        lost = ""
        with subprocess.Popen([self.argosy, *command], stdout=subprocess.PIPE, text=True) as following:
            assert following.stdout is not None
            for line in following.stdout:
                click.echo(line, nl=False)
                if PREEMPT_AT in line and not lost:
                    lost = self._ask("get", "pod", f"{RUN}-worker-1", "-o", "jsonpath={.spec.nodeName}")
                    self._run("rehearse", "preempt", lost, "--endpoint", endpoint)
        if following.returncode != 0:
            sys.exit(following.returncode)
        return lost

    def _ask(self, *arguments: str) -> str:
        """Return what kubectl prints."""
        command = [str(self.argosy), "kubectl", *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    def _run(self, *arguments: str) -> None:
        """Print a command and run it."""
        click.echo(f"$ argosy {' '.join(arguments)}")
        code = subprocess.run([self.argosy, *arguments], check=False).returncode
        if code != 0:
            sys.exit(code)

    @contextmanager
    def _background(self, arguments: Sequence[str], ready: str) -> Iterator[None]:
        """Run a command in the background, from when its output shows that it is ready."""
        click.echo(f"$ argosy {' '.join(arguments)} &")
        log = self.state / f"story-{arguments[0]}.log"
        with log.open("w") as output:
            process = subprocess.Popen([self.argosy, *arguments], stdout=output, stderr=output)
            try:
                _wait(lambda: ready in log.read_text() or process.poll() is not None, f"{arguments[0]} runs")
                if process.poll() is not None:
                    sys.exit(log.read_text())
                yield
            finally:
                process.terminate()
                process.wait(30)


def _root() -> Path:
    """Return the folder below which the files are: the clone, or a folder of the wheel."""
    path = Path(__file__)
    for root in (path.parents[3], path.parents[1] / "rehearsal"):
        if (root / FOLDER / "machines.yaml").exists():
            return root
    raise click.ClickException(f"{FOLDER} is missing from this installation")


def _argosy() -> Path:
    """Return the command that the user has called, or one of the same name."""
    beside = Path(sys.executable).with_name("argosy")
    program = beside if beside.exists() else shutil.which("argosy")
    if program is None:
        raise click.ClickException("there is no command argosy on the PATH")
    return Path(program)


def _free_port(wanted: int) -> int:
    """Return the wanted port, or another one if it is in use."""
    for port in (wanted, 0):
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(listener.getsockname()[1])
    raise click.ClickException("there is no free port")


def _wait(condition: Callable[[], bool], goal: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise click.ClickException(f"waited {SECONDS:g} s in vain until {goal}")
        time.sleep(0.2)


def _show(title: str) -> None:
    click.echo(f"\n\033[1m▌ {title}\033[0m" if sys.stdout.isatty() else f"\n== {title}")
