"""A rule of a role: what it allows, and whether rules cover others. Pure, and as Kubernetes does it.

Values keep the order in which they were written, since reviews show them so.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from argosy.local.apiserver.http import User
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import parts, strings


class Attributes(msgspec.Struct, frozen=True):
    """What is asked for: a resource, or a path when `path` is set."""

    user: User
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""


class Rule(msgspec.Struct, frozen=True, gc=False):
    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def allows(self, asked: Attributes) -> bool:
        if not ("*" in self.verbs or asked.verb in self.verbs):
            return False
        if asked.path:
            return any(_path_covers(path, asked.path) for path in self.paths)
        wanted = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        return (
            ("*" in self.groups or asked.group in self.groups)
            and _resource_in(wanted, self.resources)
            and (not self.names or asked.name in self.names)
        )

    def covers(self, atom: "Rule") -> bool:
        """Whether this rule alone gives all that a rule from `atoms` does."""
        return (
            _each_in(atom.verbs, self.verbs)
            and _each_in(atom.groups, self.groups)
            and all(_resource_in(resource, self.resources) for resource in atom.resources)
            and all(any(_path_covers(own, path) for own in self.paths) for path in atom.paths)
            and (not self.names or (bool(atom.names) and set(atom.names) <= set(self.names)))
        )

    def atoms(self) -> Iterator["Rule"]:
        """The rule in pieces with one verb, resource and name each."""
        for group in self.groups:
            for resource in self.resources:
                for verb in self.verbs:
                    for name in self.names or (None,):
                        yield Rule((verb,), (group,), (resource,), (name,) if name is not None else ())
        for path in self.paths:
            for verb in self.verbs:
                yield Rule((verb,), paths=(path,))

    def shown(self) -> str:
        """The rule in the words of a refusal."""
        named = {
            "APIGroups": self.groups,
            "Resources": self.resources,
            "NonResourceURLs": self.paths,
            "ResourceNames": self.names,
            "Verbs": self.verbs,
        }
        return "{" + ", ".join(f"{name}:{quoted(values)}" for name, values in named.items() if values) + "}"


EVERYTHING = (Rule(("*",), ("*",), ("*",)), Rule(("*",), paths=("*",)))
"""What cluster-admin has."""


def rules_of(role: Json) -> tuple[Rule, ...]:
    """The rules of a role or cluster role."""
    fields = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
    return tuple(Rule(*(tuple(strings(rule, field)) for field in fields)) for rule in parts(role, "rules"))


def missing(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """What the held rules do not cover: by group, resource and name, with the verbs together."""
    found: dict[Rule, list[str]] = {}
    for rule in wanted:
        for atom in rule.atoms():
            if not any(own.covers(atom) for own in held):
                verbs = () if atom.groups else atom.verbs  # paths are told one by one
                key = msgspec.structs.replace(atom, verbs=verbs)
                found.setdefault(key, []).extend(atom.verbs)
    return [msgspec.structs.replace(key, verbs=tuple(verbs)) for key, verbs in found.items()]


def quoted(values: Iterable[str]) -> str:
    """A list of texts as Go prints it."""
    return "[" + " ".join(f'"{value}"' for value in values) + "]"


def _each_in(wanted: tuple[str, ...], owned: tuple[str, ...]) -> bool:
    return "*" in owned or set(wanted) <= set(owned)


def _resource_in(wanted: str, owned: tuple[str, ...]) -> bool:
    if "*" in owned or wanted in owned:
        return True
    _, slash, subresource = wanted.partition("/")
    return bool(slash) and f"*/{subresource}" in owned


def _path_covers(own: str, path: str) -> bool:
    return own == path or (own.endswith("*") and path.startswith(own.rstrip("*")))
