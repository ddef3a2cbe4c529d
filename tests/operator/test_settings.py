"""Tests for settings that a replica generates for itself, and for those of the local control plane."""

import os
import socket
from pathlib import Path

import pytest

from argosy.operator.apis.registry import APIS
from argosy.operator.settings import Settings, local_settings


def test_replicas_with_the_same_host_name_and_pid_have_different_identities(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node-1")
    monkeypatch.setattr(os, "getpid", lambda: 1)
    identities = {Settings().identity for _ in range(100)}
    assert len(identities) == 100
    assert all(identity.startswith("node-1_") for identity in identities)


def test_the_local_control_plane_has_all_apis_and_features(tmp_path: Path) -> None:
    settings = local_settings(tmp_path)
    assert (settings.apis, settings.remote_exec, settings.ssh_keys) == (APIS, True, True)
