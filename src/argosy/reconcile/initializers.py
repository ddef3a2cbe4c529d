"""What an administrator may choose about the init containers of AresJobs that wait: image, command and more.

The command is a Go template for a shell, as AresOperator's configuration has it. Every value is quoted for
the shell before it is put in, so that no name of a role or a file is ever read as a command. Without one the
container has an argument vector, and no shell is needed.
"""

import shlex
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Final

from msgspec import Struct, field

from argosy.engine.template import TemplateError, Templates

CACHE_URI: Final = "CacheURI"
WORDS: Final = (
    *("Name", "Namespace", CACHE_URI, "Key", "Roles", "RolePhase"),
    *("MPIHostFile", "ReplicasPerNode", "MPIImplementation"),
)
"""The variables of a command."""
_COMMAND: Final = "command"


class ShellCommand:
    """A command that was parsed, and tried with every variable; `TemplateError` if it cannot be used."""

    def __init__(self, source: str) -> None:
        self._templates = Templates({})
        self._templates.add(_COMMAND, source)
        self.vector(dict.fromkeys(WORDS, ""))

    def vector(self, words: Mapping[str, str]) -> list[str]:
        quoted = SimpleNamespace(**{name: shlex.quote(value) for name, value in words.items()})
        try:
            text = self._templates.render(_COMMAND, quoted)
        except AttributeError as error:
            raise TemplateError(f"there is no variable .{error.name}; there are {_listed()}") from None
        return ["/bin/bash", "-c", text.replace("\n", " ")]


class Initializers(Struct, frozen=True):
    image: str = ""
    """The helper's if empty."""
    command: ShellCommand | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Folders of the node by the names of their volumes, mounted under the same paths."""


def _listed() -> str:
    return " ".join(f".{name}" for name in WORDS)
