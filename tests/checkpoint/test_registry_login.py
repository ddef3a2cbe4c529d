"""Logins of registries in Secrets."""

import base64
import json
from collections.abc import Mapping

import pytest

from argosy.checkpoint.registry_login import InvalidLoginError, Login, read_login


def encoded(**data: str | bytes) -> dict[str, str]:
    return {
        key: base64.b64encode(value if isinstance(value, bytes) else value.encode()).decode()
        for key, value in data.items()
    }


def docker_config(auths: object) -> dict[str, str]:
    return {".dockerconfigjson": base64.b64encode(json.dumps({"auths": auths}).encode()).decode()}


AUTH = base64.b64encode(b"u:p:q").decode()

LOGINS = {
    "user name and password: for any registry": (encoded(username="u", password="p:q\n"), "r.io"),
    "user name and password with a registry: for that one": (
        encoded(username="u", password="p:q", registry="https://r.io"),
        "r.io",
    ),
    "docker configuration with user name and password: for its registries": (
        docker_config({"r.io": {"username": "u", "password": "p:q"}}),
        "r.io",
    ),
    "docker configuration with auth: for its registries": (
        docker_config({"x.io": {}, "r.io:5000": {"auth": AUTH}}),
        "r.io:5000",
    ),
    "docker configuration with the URL of Docker Hub: for docker.io": (
        docker_config({"https://index.docker.io/v1/": {"auth": AUTH}}),
        "docker.io",
    ),
}


@pytest.mark.parametrize("case", LOGINS)
def test_login(case: str) -> None:
    data, host = LOGINS[case]
    assert read_login(data, host) == Login("u", "p:q")


FAULTS: dict[str, tuple[Mapping[str, str], str]] = {
    "user name without a password: key is missing": (encoded(username="u"), "key 'password' missing"),
    "binary password: key is not text": (
        encoded(username="u", password=b"\xff\xfe"),
        "key 'password' is not text",
    ),
    "line break in the user name: key is not text": (
        encoded(username="u\nx", password="p"),
        "key 'username' is not text",
    ),
    "value that is not base64: named": ({"username": "%", "password": "%"}, "key 'username' is not base64"),
    "user name and password for another registry: no login": (
        encoded(username="u", password="p", registry="other.io"),
        "no login for the registry r.io",
    ),
    "docker configuration of another registry: no login": (
        docker_config({"x.io": {"auth": AUTH}}),
        "no login for",
    ),
    "docker configuration with auth without a colon: no login": (
        docker_config({"r.io": {"auth": "dQ=="}}),
        "no login for",
    ),
    "docker configuration with auth that is not base64: no login": (
        docker_config({"r.io": {"auth": "\u00e9"}}),
        "no login for",
    ),
    "docker configuration with a list: invalid": (docker_config([1]), "not a configuration of registries"),
    "docker configuration that is not JSON: invalid": (
        encoded(**{".dockerconfigjson": b"\xff{"}),
        "not a configuration",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_invalid_login_names_the_key_and_no_content(case: str) -> None:
    data, want = FAULTS[case]
    with pytest.raises(InvalidLoginError, match=want):
        read_login(data, "r.io")


def test_shared_login_without_a_registry_is_for_none() -> None:
    shared = encoded(username="u", password="p")
    with pytest.raises(InvalidLoginError, match=r"no login for the registry evil\.example"):
        read_login(shared, "evil.example", named_only=True)
    named = {**shared, **encoded(registry="r.io")}
    assert read_login(named, "r.io", named_only=True) == Login("u", "p")
