"""Builds the call that writes host files into a launcher, in any image with `sh`, `mkdir`, `chmod` and `mv`.

The script is sent as stdin. It is one compound command, which a shell reads whole before it runs any of it,
so a connection that breaks leaves the files as they were. Each file is written beside its place and renamed.
A call that is late does nothing if a newer list was written meanwhile.
"""

from pathlib import PurePosixPath
from shlex import quote

from argosy.plan.actions import Exec
from argosy.workload.host_files import HostFiles, LiveFile
from argosy.workload.observed import ObservedPod

TIMEOUT_SECONDS = 5.0

_SCRIPT = """{{
is_newer() {{
    {{ read -r version < {version_file} && [ "$version" -gt {version} ]; }} 2> /dev/null
}}
if is_newer; then exit 0; fi
{write} &&
if is_newer; then false; fi &&
{rename} &&
exit 0
rm -f {temporary}
if is_newer; then exit 0; fi
exit 1
}}
"""


def write_call(key: str, files: HostFiles, launcher: ObservedPod, container: str) -> Exec:
    """Return the call that writes all files; it is safe to repeat, also while an earlier one still runs."""
    return Exec(
        key=key,
        pod=launcher.name,
        uid=launcher.uid,
        container=container,
        command=("/bin/sh", "-s"),
        stdin=write_script(files).encode(),
        timeout_seconds=TIMEOUT_SECONDS,
    )


def write_script(files: HostFiles) -> str:
    """Return a script that writes the files, unless those that exist are of a later version."""
    # The version first, so that an older call that runs at the same time gives up.
    every = (LiveFile(files.version_file, 0o644, f"{files.version}\n"), *files.live)
    folders = sorted({str(PurePosixPath(file.path).parent) for file in every})
    return _SCRIPT.format(
        version_file=quote(files.version_file),
        version=files.version,
        write=" &&\n".join([f"mkdir -p {' '.join(map(quote, folders))}", *map(_write, every)]),
        rename=" &&\n".join(f"mv -f {_temporary(file)} {quote(file.path)}" for file in every),
        temporary=" ".join(map(_temporary, every)),
    )


def _write(file: LiveFile) -> str:
    temporary = _temporary(file)
    return f"printf %s {quote(file.content)} > {temporary} && chmod {file.mode:04o} {temporary}"


def _temporary(file: LiveFile) -> str:
    """Return the name under which a file is written, as a word of the script: `$$` is the shell's process."""
    path = PurePosixPath(file.path)
    return f'{quote(f"{path.parent}/.{path.name}.")}"$$"'
