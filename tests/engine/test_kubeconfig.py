import base64
import os
from pathlib import Path

import pytest
import yaml

from argosy.engine.credentials import FixedCredentials, TokenFile
from argosy.engine.errors import Unauthorized
from argosy.engine.kubeconfig import Connection, KubeconfigError


def write(path: Path, cluster: dict[str, object], user: dict[str, object], name: str = "one") -> Path:
    config = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "work"}}],
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


async def test_inline_data_wins_over_files(tmp_path: Path) -> None:
    inline = base64.b64encode(b"inline").decode()
    path = write(
        tmp_path / "config",
        {"server": "https://host:1/", "certificate-authority-data": inline, "certificate-authority": "no"},
        {"token": "abc"},
    )
    connection = Connection.from_kubeconfig(path)
    assert connection.server == "https://host:1"
    assert connection.certificate_authority == b"inline"
    assert connection.namespace == "work"
    assert (await connection.credentials.current()).headers == {"Authorization": "Bearer abc"}


def test_file_names_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"authority")
    path = write(tmp_path / "config", {"server": "https://h", "certificate-authority": "ca.crt"}, {})
    assert Connection.from_kubeconfig(path).certificate_authority == b"authority"


async def test_a_certificate_or_a_password_identifies_too(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"certificate")
    (tmp_path / "k").write_bytes(b"key")
    path = write(tmp_path / "a", {"server": "https://h"}, {"client-certificate": "c", "client-key": "k"})
    identity = await Connection.from_kubeconfig(path).credentials.current()
    assert identity.certificate is not None
    assert identity.certificate.key == b"key"
    path = write(tmp_path / "b", {"server": "https://h"}, {"username": "u", "password": "p"})
    identity = await Connection.from_kubeconfig(path).credentials.current()
    assert identity.headers == {"Authorization": "Basic dTpw"}


async def test_of_several_files_the_first_that_names_a_thing_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(tmp_path / "1", {"server": "https://first"}, {}, "one")
    second = write(tmp_path / "2", {"server": "https://second"}, {}, "two")
    missing = tmp_path / "3"
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, (missing, first, second))))
    assert Connection.from_kubeconfig().server == "https://first"
    assert Connection.from_kubeconfig(context="two").server == "https://second"


def test_a_unix_socket_may_stand_in_for_the_address(tmp_path: Path) -> None:
    extension = {"name": "argosy.dev/unix-socket", "extension": {"path": "/run/api.sock"}}
    path = write(tmp_path / "c", {"server": "https://localhost", "extensions": [extension]}, {})
    assert Connection.from_kubeconfig(path).unix_socket == "/run/api.sock"


BAD = {
    "a context that is not there": ("context: x", {"server": "https://h"}, "no context named 'other'"),
    "a cluster without a server": ("", {}, "has no server"),
    "data that is not base64": ("", {"server": "https://h", "certificate-authority-data": "!"}, "authority"),
}


@pytest.mark.parametrize("sentence", BAD)
def test_what_is_wrong_is_said(sentence: str, tmp_path: Path) -> None:
    context, cluster, want = BAD[sentence]
    path = write(tmp_path / "config", dict(cluster), {})
    with pytest.raises(KubeconfigError, match=want):
        Connection.from_kubeconfig(path, "other" if context else None)


def test_no_kubeconfig_and_no_yaml_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="does not exist"):
        Connection.from_kubeconfig(tmp_path / "none")
    (tmp_path / "bad").write_text("{[")
    with pytest.raises(KubeconfigError, match="bad"):
        Connection.from_kubeconfig(tmp_path / "bad")


def test_in_a_pod_the_service_account_is_used(tmp_path: Path) -> None:
    for name, text in {"token": "t", "ca.crt": "ca", "namespace": "mine\n"}.items():
        (tmp_path / name).write_text(text)
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    connection = Connection.in_cluster(tmp_path, environment)
    assert connection.server == "https://[fd00::1]:6443"
    assert connection.namespace == "mine"
    assert isinstance(connection.credentials, TokenFile)


def test_outside_of_a_pod_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="not in a cluster"):
        Connection.in_cluster(tmp_path, {})


def test_credentials_written_down_cannot_be_refreshed() -> None:
    assert FixedCredentials().refresh() is False


async def test_an_exec_plugin_is_found_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text('#!/bin/sh\necho "{\\"status\\": {\\"token\\": \\"$WHO-$1\\"}}"\n')
    plugin.chmod(0o755)
    settings = {"command": "./plugin", "args": ["x"], "env": [{"name": "WHO", "value": "me"}]}
    path = write(tmp_path / "config", {"server": "https://h"}, {"exec": settings})
    assert (await Connection.from_kubeconfig(path).credentials.current()).token == "me-x"


async def test_an_exec_plugin_that_is_missing_says_how_to_get_it(tmp_path: Path) -> None:
    settings = {"command": "no-such-plugin-anywhere", "installHint": "pip install it"}
    path = write(tmp_path / "config", {"server": "https://h"}, {"exec": settings})
    with pytest.raises(Unauthorized, match="pip install it"):
        await Connection.from_kubeconfig(path).credentials.current()
