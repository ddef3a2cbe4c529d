"""Sockets in folders have short paths, and exist only while a process listens."""

import socket
from pathlib import Path

import pytest

from argosy.local.node import shim_socket


def test_a_socket_has_its_name_only_when_it_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there_before: list[bool] = []
    listen = socket.socket.listen

    def watched(server: socket.socket, backlog: int) -> None:
        there_before.append((tmp_path / shim_socket.SHIM_SOCKET).exists())
        listen(server, backlog)

    monkeypatch.setattr(socket.socket, "listen", watched)
    with shim_socket.listen(tmp_path), shim_socket.connect(tmp_path):
        assert there_before == [False]


def test_the_socket_of_a_dead_owner_is_taken_over(tmp_path: Path) -> None:
    shim_socket.listen(tmp_path).close()
    with pytest.raises(ConnectionRefusedError):
        shim_socket.connect(tmp_path)
    with shim_socket.listen(tmp_path), shim_socket.connect(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [shim_socket.SHIM_SOCKET]


def test_a_folder_may_be_deeper_than_the_maximum_socket_path(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a" * 30] * 5)
    deep.mkdir(parents=True)
    with shim_socket.listen(deep), shim_socket.connect(deep):
        assert (deep / shim_socket.SHIM_SOCKET).is_socket()
