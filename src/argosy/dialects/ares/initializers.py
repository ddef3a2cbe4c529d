"""Administrator settings for the init container `initializer` of AresJobs: image, command, env and volumes.

The command is a Go template that a shell runs, as in AresOperator's configuration. Every value is quoted for
the shell before it is inserted, so a role or file name is never executed. The quotes protect a value only
where it starts a word of its own, so a template that puts quotes around a variable is rejected. Without a
command the container runs an argument vector and needs no shell.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Final

from msgspec import Struct, field

from argosy.gotemplate import TemplateError, Templates

CACHE_URI: Final = "CacheURI"
TEMPLATE_VARIABLES: Final = (
    *("Name", "Namespace", CACHE_URI, "Key", "Roles", "RolePhase"),
    *("MPIHostFile", "ReplicasPerNode", "MPIImplementation"),
)
"""Variables that a command may use."""
_COMMAND: Final = "command"
_MARK: Final = "\0"
"""Encloses a variable's name in a rendered command, in place of its value."""
_VARIABLE: Final = re.compile(f"{_MARK}(\\w+){_MARK}")
_CLOSING: Final = {"(": ")", "$((": "))", "${": "}", "'": "'", "$'": "'", '"': '"', "`": "`"}
_EXPANSIONS: Final = ("$((", "$(", "${", "`")
_OPENING: Final = {
    "(": ("$((", "$(", "${", "`", "$'", "'", '"', "("),
    '"': _EXPANSIONS,
    "${": (*_EXPANSIONS, '"'),
    "$((": (*_EXPANSIONS, "("),
}
"""Quotes and brackets that change how a shell reads what follows, by the one that encloses them."""


class ShellCommand:
    """A parsed command template. Raises `TemplateError` if it is invalid or quotes a variable."""

    def __init__(self, source: str) -> None:
        self._templates = Templates({})
        self._templates.add(_COMMAND, source)
        self.argv(dict.fromkeys(TEMPLATE_VARIABLES, ""))
        marked = SimpleNamespace(**{name: f"{_MARK}{name}{_MARK}" for name in TEMPLATE_VARIABLES})
        if quoted := next(_quoted_variables(self._templates.render(_COMMAND, marked)), ""):
            raise TemplateError(
                f"{{{{.{quoted}}}}}: must not be inside quotes, after a backslash or in an expansion: values"
                f" are already quoted for the shell, as in --key {{{{.{quoted}}}}}"
            )

    def argv(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Return the command with these values, each quoted for the shell."""
        quoted = SimpleNamespace(**{name: shlex.quote(value) for name, value in values.items()})
        try:
            text = self._templates.render(_COMMAND, quoted)
        except AttributeError as error:
            raise TemplateError(f"unknown variable .{error.name} (known variables: {_variables()})") from None
        return ("/bin/bash", "-c", text.replace("\n", " "))


class Initializers(Struct, frozen=True):
    """What an administrator may set for the initializers of all AresJobs."""

    image: str = ""
    """The helper's image if empty."""
    command: ShellCommand | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Folders of the node by volume name, mounted under the same path."""


class ObserverAddress(Struct, frozen=True):
    """Where an initializer asks for the phases of roles."""

    uri: str
    """`http(s)://HOST` or `nodePort://IP,…:PORT`; the operator's own endpoint if empty."""
    tls: bool = True


LocateObserver = Callable[[bool], ObserverAddress]
"""Returns the address for a pod; the argument says whether the pod uses its node's network."""


def operator_endpoint(host_network: bool) -> ObserverAddress:
    """Return the operator's own endpoint, which answers where no observers are installed."""
    del host_network
    return ObserverAddress("")


def _quoted_variables(text: str) -> Iterator[str]:
    """Yield the variables at positions where the quotes around a value would not protect it.

    They protect it only between the words of a command, including commands in brackets.
    """
    opened: list[str] = []
    index = 0
    while index < len(text):
        inside, remaining = opened[-1] if opened else "(", text[index:]
        escaped = inside != "'" and remaining.startswith("\\")
        if variable := _VARIABLE.match(remaining, escaped):
            if escaped or inside != "(":
                yield variable[1]
            index += variable.end()
        elif escaped:
            index += 2
        elif opened and remaining.startswith(_CLOSING[inside]):
            opened.pop()
            index += len(_CLOSING[inside])
        elif opening := next(
            (token for token in _OPENING.get(inside, ()) if remaining.startswith(token)), ""
        ):
            opened.append("(" if opening == "$(" else opening)
            index += len(opening)
        elif inside == "(" and remaining.startswith("#") and text[index - 1 : index].strip() == "":
            return  # a comment up to the end of the text, which has no line breaks
        else:
            index += 1


def _variables() -> str:
    return " ".join(f".{name}" for name in TEMPLATE_VARIABLES)
