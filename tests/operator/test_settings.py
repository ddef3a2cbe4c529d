"""Tests for settings that every replica generates for itself."""

import os
import socket

import pytest

from argosy.operator.settings import Settings


def test_replicas_with_the_same_host_name_and_pid_have_different_identities(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node-1")
    monkeypatch.setattr(os, "getpid", lambda: 1)
    identities = {Settings().identity for _ in range(100)}
    assert len(identities) == 100
    assert all(identity.startswith("node-1_") for identity in identities)
