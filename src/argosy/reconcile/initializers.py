"""Holds what an administrator may configure for the init containers of AresJobs: image, command and more.

The command is a Go template for a shell, as in AresOperator's configuration. Every value is quoted for the
shell before it is inserted, so that no name of a role or a file is ever read as a command. That holds only
outside of quotes: a template that puts quotes of its own around a variable is rejected. Without a command the
container has an argument vector, and no shell is needed.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Final

from msgspec import Struct, field

from argosy.gotemplate import TemplateError, Templates

CACHE_URI: Final = "CacheURI"
TEMPLATE_VARIABLES: Final = (
    *("Name", "Namespace", CACHE_URI, "Key", "Roles", "RolePhase"),
    *("MPIHostFile", "ReplicasPerNode", "MPIImplementation"),
)
"""The variables of a command."""
_COMMAND: Final = "command"
_MARK: Final = "\0"
"""Put on both sides of a variable's name, to find where its value would be inserted."""
_VARIABLE: Final = re.compile(f"{_MARK}(\\w+){_MARK}")
_CLOSING: Final = {"(": ")", "$((": "))", "${": "}", "'": "'", "$'": "'", '"': '"', "`": "`"}
_EXPANSIONS: Final = ("$((", "$(", "${", "`")
_OPENING: Final = {
    "(": ("$((", "$(", "${", "`", "$'", "'", '"', "("),
    '"': _EXPANSIONS,
    "${": (*_EXPANSIONS, '"'),
    "$((": (*_EXPANSIONS, "("),
}
"""Quotes and brackets that change how a shell reads what follows, by what is open already."""


class ShellCommand:
    """A parsed command. Raises TemplateError if the template is invalid or not safe with every value."""

    def __init__(self, source: str) -> None:
        self._templates = Templates({})
        self._templates.add(_COMMAND, source)
        self.argv(dict.fromkeys(TEMPLATE_VARIABLES, ""))
        marked = SimpleNamespace(**{name: f"{_MARK}{name}{_MARK}" for name in TEMPLATE_VARIABLES})
        if quoted := next(_quoted_variables(self._templates.render(_COMMAND, marked)), ""):
            raise TemplateError(
                f"{{{{.{quoted}}}}} stands inside quotes, after a backslash or in an expansion; values are"
                f" quoted for the shell already: write it bare, as in --key {{{{.{quoted}}}}}"
            )

    def argv(self, values: Mapping[str, str]) -> list[str]:
        """Return the argument vector for these values of the template's variables."""
        quoted = SimpleNamespace(**{name: shlex.quote(value) for name, value in values.items()})
        try:
            text = self._templates.render(_COMMAND, quoted)
        except AttributeError as error:
            raise TemplateError(f"unknown variable .{error.name} (known variables: {_listed()})") from None
        return ["/bin/bash", "-c", text.replace("\n", " ")]


class Initializers(Struct, frozen=True):
    image: str = ""
    """The helper's if empty."""
    command: ShellCommand | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Folders of the node by the names of their volumes, mounted under the same paths."""


def _quoted_variables(text: str) -> Iterator[str]:
    """Yield the variables that are used where quoting their value would not protect it: anywhere but in plain
    commands and in commands in brackets."""
    opened: list[str] = []
    index = 0
    while index < len(text):
        inside, rest = opened[-1] if opened else "(", text[index:]
        escaped = inside != "'" and rest.startswith("\\")
        if found := _VARIABLE.match(rest, escaped):
            if escaped or inside != "(":
                yield found[1]
            index += found.end()
        elif escaped:
            index += 2
        elif opened and rest.startswith(_CLOSING[inside]):
            opened.pop()
            index += len(_CLOSING[inside])
        elif opening := next((one for one in _OPENING.get(inside, ()) if rest.startswith(one)), ""):
            opened.append("(" if opening == "$(" else opening)
            index += len(opening)
        elif inside == "(" and rest.startswith("#") and text[index - 1 : index].strip() == "":
            return  # a comment, to the end: there are no lines
        else:
            index += 1


def _listed() -> str:
    return " ".join(f".{name}" for name in TEMPLATE_VARIABLES)
