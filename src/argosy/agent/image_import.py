"""Gives an image that is not pushed anywhere to the container runtime of the node."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from argosy.checkpoint.image_names import Image

IMPORT_SECONDS: Final = 600.0
MAX_MESSAGE_CHARS: Final = 300

_COMMANDS: Final = {
    "containerd": ("ctr", "--namespace", "k8s.io", "images", "import", "{archive}"),
    "cri-o": ("skopeo", "copy", "oci-archive:{archive}", "containers-storage:{image}"),
}


def import_command(runtime: str, prefix: Sequence[str]) -> list[str]:
    """Return the command that imports an archive into a runtime, such as `containerd://2.1`."""
    command = _COMMANDS.get(runtime.partition("://")[0])
    return [*prefix, *command] if command else []


async def import_image(command: Sequence[str], archive: Path, image: Image) -> str:
    """Import an archive; returns the problem, empty if there is none."""
    if not command:
        return "no command is known for the container runtime of the node"
    words = [word.format(archive=archive, image=image) for word in command]
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return f"{words[0]}: {error.strerror}"
    try:
        async with asyncio.timeout(IMPORT_SECONDS):
            _, errors = await process.communicate()
    except TimeoutError:
        return f"{words[0]}: not finished after {IMPORT_SECONDS:.0f} seconds"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode == 0:
        return ""
    text = errors.decode("utf-8", "replace").strip()[-MAX_MESSAGE_CHARS:]
    return f"{words[0]}: exit code {process.returncode}: {text}"
