"""Puts what remote exec needs in a user's container into a shared folder: `kubectl` and `remote-exec`.

Both run in any image: kubectl is a static binary, remote-exec is POSIX shell, put together from two files of
this package: the agent, and the keeper that the agent sends to the other pod. Launchers that know no other
agent than `ssh` find remote exec under that name in the folder `bin`, once that is on their PATH.
"""

import os
import shutil
from pathlib import Path

from argosy.helper.errors import RejectedError
from argosy.helper.files import replace_file

_AGENT, _KEEPER = (Path(__file__).with_name(name) for name in ("remote-exec", "remote-keeper"))
_KEEPER_LINE = "@remote-keeper@\n"
SSH = b'#!/bin/sh\nexec "$(dirname -- "$0")/../remote-exec" "$@"\n'


def prepare(folder: Path, kubectl: str | None = None) -> None:
    source = kubectl or shutil.which("kubectl")
    if not source or not os.access(source, os.X_OK):
        raise RejectedError(
            f"no kubectl at {source or 'any place on PATH'}: the helper's image must carry one"
        )
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / ".kubectl"
    shutil.copyfile(source, temporary)
    temporary.chmod(0o755)
    temporary.replace(folder / "kubectl")
    replace_file(folder / "remote-exec", render_remote_exec().encode(), 0o755)
    (folder / "bin").mkdir(exist_ok=True)
    replace_file(folder / "bin" / "ssh", SSH, 0o755)


def render_remote_exec() -> str:
    """Return the agent with the keeper in it."""
    return _AGENT.read_text().replace(_KEEPER_LINE, _KEEPER.read_text(), 1)
