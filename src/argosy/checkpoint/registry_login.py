"""Reads the login of a registry from the data of a Secret, in both forms that there are.

A Secret has `username` and `password`, and `registry` if they are for one registry only; or it is one of
`kubectl create secret docker-registry`, with a login for each of several registries.
"""

import base64
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from argosy.checkpoint.image_names import DOCKER_HUB, InvalidImageNameError, registry_host

DOCKER_CONFIG = ".dockerconfigjson"


class Login(Struct, frozen=True):
    """A user name and a password, or a token in the place of the password."""

    username: str
    password: str

    @property
    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


class InvalidLoginError(ValueError):
    """A Secret cannot be used for a registry; the message says what is wrong, and no content."""


class _Entry(Struct):
    auth: str = ""
    username: str = ""
    password: str = ""


class _Config(Struct):
    auths: dict[str, _Entry]


def read_login(data: Mapping[str, str], host: str, *, named_only: bool = False) -> Login:
    """Return the login for a registry, from base64 data; raises InvalidLoginError.

    With `named_only` the Secret must name the registry: a login that is shared by all must not be sent to a
    registry that a user chooses.
    """
    if DOCKER_CONFIG in data:
        return _from_config(decode_value(data, DOCKER_CONFIG), host)
    login = Login(_text(data, "username"), _text(data, "password"))
    registry = _text(data, "registry") if "registry" in data else ""
    if not registry and not named_only:
        return login
    if not registry or _host(registry) != host:
        raise InvalidLoginError(f"it has no login for the registry {host}")
    return login


def decode_value(data: Mapping[str, str], key: str) -> bytes:
    """Return a value of base64 data; raises InvalidLoginError."""
    if key not in data:
        raise InvalidLoginError(f"key {key!r} missing")
    try:
        return base64.b64decode(data[key], validate=True)
    except ValueError:
        raise InvalidLoginError(f"key {key!r} is not base64") from None


def encoded(content: Mapping[str, bytes]) -> dict[str, str]:
    """Return the content of a Secret as the data of its object."""
    return {key: base64.b64encode(value).decode() for key, value in content.items()}


def docker_config(login: Login, host: str) -> bytes:
    """Return the content of a Secret by which pods pull images of a registry."""
    server = "https://index.docker.io/v1/" if host == DOCKER_HUB else host
    auth = login.basic.removeprefix("Basic ")
    entry = {"username": login.username, "password": login.password, "auth": auth}
    return msgspec.json.encode({"auths": {server: entry}})


def _from_config(content: bytes, host: str) -> Login:
    try:
        entries = msgspec.json.decode(content, type=_Config).auths
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidLoginError(f"key {DOCKER_CONFIG!r} is not a configuration of registries") from None
    for name, entry in entries.items():
        if _host(name) != host:
            continue
        if entry.username:
            return Login(entry.username, entry.password)
        try:
            username, colon, password = base64.b64decode(entry.auth).decode().partition(":")
        except ValueError:
            break
        if colon:
            return Login(username, password)
    raise InvalidLoginError(f"it has no login for the registry {host}")


def _host(registry: str) -> str:
    """Return the host of a registry that is given as a host or a URL; empty if it is neither."""
    try:
        return registry_host((registry.partition("://")[2] or registry).partition("/")[0])
    except InvalidImageNameError:
        return ""


def _text(data: Mapping[str, str], key: str) -> str:
    try:
        text = decode_value(data, key).decode().strip()
    except UnicodeDecodeError:
        raise InvalidLoginError(f"key {key!r} is not text") from None
    if not text.isprintable():
        raise InvalidLoginError(f"key {key!r} is not text")
    return text
