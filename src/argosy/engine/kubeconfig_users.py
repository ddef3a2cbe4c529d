"""Loads the credentials of a kubeconfig user: token, password, client certificate or exec plugin.

As in kubectl, an exec plugin is used only if the user has no other credentials. Settings that are not
supported are errors with the field's name: ignoring them could send requests with another identity.
"""

import base64
import os
import ssl
import sys
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from argosy.engine.certificates import Certificate, check_certificate
from argosy.engine.clock import Clock
from argosy.engine.credentials import Credentials, FileCredentials, FixedCredentials, Identity
from argosy.engine.execplugin import ExecPlugin
from argosy.engine.kubeconfig_entries import KubeconfigEntry

EXEC_EXTENSION = "client.authentication.k8s.io/exec"
"""The extension of a cluster whose content is passed to exec plugins."""

EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


def load_credentials(user: KubeconfigEntry, cluster: KubeconfigEntry, clock: Clock) -> Credentials:
    """Return the credentials of a user for a cluster; `KubeconfigError` if they are invalid."""
    if user.value.get("auth-provider") is not None:
        user.reject("auth-provider", "not supported; use an exec plugin (`exec`) or a token")
    username, password = user.text("username"), user.text("password")
    token, token_file = user.text("token"), user.file("tokenFile")
    basic = (username, password) if username or password else None
    if basic and (token or token_file):
        user.reject("username", "not supported with a token; only one of them is allowed")
    certificate = _certificate(user)
    if user.value.get("exec") is not None:
        plugin = _exec_plugin(user, cluster, clock)
        if not (basic or token or token_file or certificate):
            return plugin
    identity = Identity(token, basic, certificate)
    pair = _certificate_files(user)
    if token_file is None and pair is None:
        return FixedCredentials(identity)
    return FileCredentials(token=token_file, certificate=pair, default=identity, clock=clock)


def _certificate(user: KubeconfigEntry) -> Certificate | None:
    certificate, key = user.data("client-certificate"), user.data("client-key")
    if certificate is None and key is None:
        return None
    if key is None:
        user.reject("client-certificate", "client-key or client-key-data must be set, too")
    if certificate is None:
        user.reject("client-key", "client-certificate or client-certificate-data must be set, too")
    pair = Certificate(certificate, key)
    try:
        check_certificate(pair)
    except ssl.SSLError as error:
        user.reject("client-certificate", f"cannot be used with client-key: {error}")
    return pair


def _certificate_files(user: KubeconfigEntry) -> tuple[Path, Path] | None:
    """Return the paths of certificate and key; None unless both are in files."""
    if user.text("client-certificate-data") or user.text("client-key-data"):
        return None
    certificate, key = user.file("client-certificate"), user.file("client-key")
    return (certificate, key) if certificate and key else None


class _EnvironmentVariable(Struct):
    name: str
    value: str = ""


class _Exec(Struct, rename="camel"):
    command: str
    api_version: str = EXEC_VERSIONS[0]
    args: list[str] | None = None
    env: list[_EnvironmentVariable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: Literal["Never", "IfAvailable", "Always"] = "IfAvailable"


def _exec_plugin(user: KubeconfigEntry, cluster: KubeconfigEntry, clock: Clock) -> ExecPlugin:
    try:
        settings = msgspec.convert(user.value["exec"], _Exec)
    except msgspec.ValidationError as error:
        user.reject("exec", str(error))
    if settings.api_version not in EXEC_VERSIONS:
        allowed = " or ".join(EXEC_VERSIONS)
        user.reject("exec.apiVersion", f"invalid value {settings.api_version!r}: must be {allowed}")
    command = settings.command
    if os.sep in command:
        command = str(user.folder / command)
    return ExecPlugin(
        command,
        settings.args or (),
        environment={variable.name: variable.value for variable in settings.env or ()},
        api_version=settings.api_version,
        cluster=_cluster_info(cluster) if settings.provide_cluster_info else None,
        install_hint=settings.install_hint,
        interactive=_is_interactive(user, settings),
        clock=clock,
    )


def _is_interactive(user: KubeconfigEntry, settings: _Exec) -> bool:
    """Return True if the plugin may use the terminal; `Always` is an error where there is none."""
    if settings.interactive_mode == "Never":
        return False
    terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
    if settings.interactive_mode == "Always" and not terminal:
        user.reject("exec.interactiveMode", "Always requires a terminal, but standard input is not one")
    return terminal


def _cluster_info(cluster: KubeconfigEntry) -> dict[str, object]:
    """Return the cluster's settings for a plugin, with the field names of a kubeconfig."""
    authority = cluster.data("certificate-authority")
    info = {
        "server": cluster.text("server"),
        "tls-server-name": cluster.text("tls-server-name"),
        "insecure-skip-tls-verify": cluster.value.get("insecure-skip-tls-verify"),
        "certificate-authority-data": base64.b64encode(authority).decode() if authority else None,
        "proxy-url": cluster.text("proxy-url"),
        "disable-compression": cluster.value.get("disable-compression"),
        "config": cluster.extension(EXEC_EXTENSION),
    }
    return {name: value for name, value in info.items() if value or name == "server"}
