"""Reads who to log in to a registry as from the content of a Secret, and writes Secrets for pulling images.

A Secret has the keys `username` and `password`, perhaps with the host in `registry`, or `.dockerconfigjson`.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct, field

from argosy.checkpoint.image_names import DOCKER_HUB, InvalidImageNameError, registry_host

DOCKER_CONFIG: Final = ".dockerconfigjson"


class UserLogin(Struct, frozen=True):
    """A user name and a password."""

    username: str
    password: str

    def __repr__(self) -> str:
        return f"UserLogin({self.username!r})"


class InvalidCredentialsError(ValueError):
    """A Secret has no usable login for a registry; the message says what is missing."""


class _Entry(Struct):
    username: str = ""
    password: str = ""
    auth: str = ""


class _Config(Struct):
    auths: dict[str, _Entry] = field(default_factory=dict)


def find_login(content: Mapping[str, bytes], host: str) -> UserLogin | None:
    """Return the login for a registry; None without any content. Raises InvalidCredentialsError."""
    if not content:
        return None
    if DOCKER_CONFIG in content:
        return _from_config(content[DOCKER_CONFIG], host)
    missing = [key for key in ("username", "password") if not content.get(key)]
    if missing:
        raise InvalidCredentialsError(f'key "{missing[0]}" missing')
    named = _text(content.get("registry", b"")).strip()
    if named and _host(named) != host:
        raise InvalidCredentialsError(f"the login is for the registry {named}, not for {host}")
    return UserLogin(_text(content["username"]).strip(), _text(content["password"]).strip())


def docker_config(content: Mapping[str, bytes], host: str) -> bytes:
    """Return the content of a Secret of the type `kubernetes.io/dockerconfigjson` for one registry."""
    login = find_login(content, host)
    if login is None:
        raise InvalidCredentialsError('key "username" missing')
    pair = base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
    server = "https://index.docker.io/v1/" if host == DOCKER_HUB else host
    entry = {"username": login.username, "password": login.password, "auth": pair}
    return msgspec.json.encode({"auths": {server: entry}})


def _from_config(raw: bytes, host: str) -> UserLogin:
    try:
        config = msgspec.json.decode(raw, type=_Config)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidCredentialsError(f'key "{DOCKER_CONFIG}": invalid JSON') from None
    entry = next((entry for server, entry in config.auths.items() if _host(server) == host), None)
    if entry is None:
        raise InvalidCredentialsError(f'key "{DOCKER_CONFIG}" has no login for {host}')
    if entry.auth:
        try:
            username, colon, password = base64.b64decode(entry.auth).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise InvalidCredentialsError(f'key "{DOCKER_CONFIG}": invalid auth of {host}') from None
        if colon:
            return UserLogin(username, password)
    return UserLogin(entry.username, entry.password)


def _host(server: str) -> str:
    """Return the host of a registry as it is written in configurations, such as https://host/v1/."""
    try:
        return registry_host(server.removesuffix("/").removesuffix("/v1").removesuffix("/v2"))
    except InvalidImageNameError:
        return ""


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
