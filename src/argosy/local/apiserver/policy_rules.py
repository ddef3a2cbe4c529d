"""The rules of roles: what they allow, and whether rules cover others.

Values keep their order, because access reviews show it.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from argosy.local.apiserver.http import User
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_maps, get_strings


class Attributes(msgspec.Struct, frozen=True):
    """What a request wants to do: with a resource, or with a path if `path` is set."""

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

    def allows(self, attributes: Attributes) -> bool:
        if not ("*" in self.verbs or attributes.verb in self.verbs):
            return False
        if attributes.path:
            return any(_path_covers(path, attributes.path) for path in self.paths)
        wanted = (
            f"{attributes.resource}/{attributes.subresource}"
            if attributes.subresource
            else attributes.resource
        )
        return (
            ("*" in self.groups or attributes.group in self.groups)
            and _resource_in(wanted, self.resources)
            and (not self.names or attributes.name in self.names)
        )

    def covers(self, atom: "Rule") -> bool:
        """Return True if this rule alone allows everything that a rule of `atoms` allows."""
        return (
            _each_in(atom.verbs, self.verbs)
            and _each_in(atom.groups, self.groups)
            and all(_resource_in(resource, self.resources) for resource in atom.resources)
            and all(any(_path_covers(own, path) for own in self.paths) for path in atom.paths)
            and (not self.names or (bool(atom.names) and set(atom.names) <= set(self.names)))
        )

    def atoms(self) -> Iterator["Rule"]:
        """Yield the rule as rules with one verb, resource and name each."""
        for group in self.groups:
            for resource in self.resources:
                for verb in self.verbs:
                    for name in self.names or (None,):
                        yield Rule((verb,), (group,), (resource,), (name,) if name is not None else ())
        for path in self.paths:
            for verb in self.verbs:
                yield Rule((verb,), paths=(path,))

    def format(self) -> str:
        """Return the rule as messages show it."""
        named = {
            "APIGroups": self.groups,
            "Resources": self.resources,
            "NonResourceURLs": self.paths,
            "ResourceNames": self.names,
            "Verbs": self.verbs,
        }
        return (
            "{" + ", ".join(f"{name}:{format_list(values)}" for name, values in named.items() if values) + "}"
        )


EVERYTHING = (Rule(("*",), ("*",), ("*",)), Rule(("*",), paths=("*",)))
"""The rules of cluster-admin."""


def rules_of(role: Json) -> tuple[Rule, ...]:
    """Return the rules of a role or cluster role."""
    fields = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
    return tuple(
        Rule(*(tuple(get_strings(rule, field)) for field in fields)) for rule in get_maps(role, "rules")
    )


def missing(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """Return the rules that the held rules do not cover, by group, resource and name with all their verbs."""
    verbs_of: dict[Rule, list[str]] = {}
    for rule in wanted:
        for atom in rule.atoms():
            if not any(own.covers(atom) for own in held):
                verbs = () if atom.groups else atom.verbs  # paths are listed one by one
                key = msgspec.structs.replace(atom, verbs=verbs)
                verbs_of.setdefault(key, []).extend(atom.verbs)
    return [msgspec.structs.replace(key, verbs=tuple(verbs)) for key, verbs in verbs_of.items()]


def format_list(values: Iterable[str]) -> str:
    """Return a list of texts as messages show it."""
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
