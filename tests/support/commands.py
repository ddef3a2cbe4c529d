"""Runs programs as a user does, and shows the output of those that fail."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def _program(name: str) -> Path:
    """The path of a program in the folder of Python, as in any virtual environment, or else on the PATH."""
    installed = Path(sys.executable).with_name(name)
    return installed if installed.exists() else Path(shutil.which(name) or installed)


ARGOSY = _program("argosy")
KUBECTL = _program("kubectl")
REPOSITORY = Path(__file__).parents[2]


def module(name: str, *words: str) -> tuple[str, ...]:
    """The command of a Python module of the repository, from any folder with `module_environment`.

    `-P` keeps a folder called `tests` or `tools` in the current folder from being imported instead.
    """
    return (sys.executable, "-P", "-m", name, *words)


def module_environment(**more: str) -> dict[str, str]:
    """This process's variables, with the repository's root on Python's path for `tests` and `tools`."""
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **more}


def environment(**more: str) -> dict[str, str]:
    """This process's variables without those that point at a cluster, and with our programs on the PATH."""
    kept = {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "VIRTUAL_ENV")}
    return {**kept, "PATH": f"{ARGOSY.parent}{os.pathsep}{os.environ['PATH']}", **more}


def run(
    command: Sequence[str],
    variables: Mapping[str, str],
    *,
    code: int | None = 0,
    stdin: str | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run a command from the repository's root; a code other than wanted (None: any) fails the test."""
    done = subprocess.run(
        command,
        env=variables,
        cwd=REPOSITORY,
        input=stdin if stdin is not None else "",
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if code is not None and done.returncode != code:
        raise AssertionError(
            f"{' '.join(command)} ended with {done.returncode}, not {code}\n{done.stdout}{done.stderr}"
        )
    return done


def start(command: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start a command and return at once; its output is to be read from the pipe."""
    return subprocess.Popen(
        command,
        env=variables,
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
