"""Tests for the command `scripts/kubernetes`."""

import os
import signal
from pathlib import Path

import pytest

from tests.support import assets, kubernetes
from tests.support.servers import Server


def test_missing_program_is_reported_with_the_build_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    assert kubernetes.main(["up", "--apiserver-only", "--dir", str(tmp_path / "d")]) == 1
    assert "scripts/kubernetes build apiserver" in capsys.readouterr().err


def test_missing_go_is_reported_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kubernetes.main(["build", "apiserver"]) == 1
    assert "needs Go" in capsys.readouterr().err


def test_programs_of_kubebuilder_assets_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(assets.MissingAsset, match="not in KUBEBUILDER_ASSETS"):
        assets.find("etcd")
    (tmp_path / "etcd").touch(mode=0o755)
    assert assets.find("etcd") == tmp_path / "etcd"


def test_given_cluster_is_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    monkeypatch.setenv("ARGOSY_TEST_KUBECONFIG", str(kubeconfig))
    for command in ("build", "down", "env"):
        assert kubernetes.main([command]) == 0
    assert capsys.readouterr().out == f"export KUBECONFIG={kubeconfig}\n"
    assert kubernetes.main(["up"]) == 1
    assert "is not ready" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_up_with_a_ready_given_cluster_succeeds(
    real_apiserver: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARGOSY_TEST_KUBECONFIG", str(real_apiserver.kubeconfig))
    assert kubernetes.main(["up", "--nodes", "2"]) == 0
    assert capsys.readouterr().out == f"{real_apiserver.kubeconfig}\n"


def test_cluster_without_root_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert kubernetes.main(["up", "--dir", str(tmp_path / "d")]) == 1
    assert "needs root" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_cluster_without_its_programs_names_the_build_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    assert kubernetes.main(["up", "--version", "1.35", "--dir", str(tmp_path / "d")]) == 1
    assert "run scripts/kubernetes build --version 1.35" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_folder_with_other_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert kubernetes.main(["down", "--dir", str(tmp_path)]) == 1
    assert (tmp_path / "thesis.txt").exists()


def test_commands_without_a_server_report_that_nothing_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kubernetes.main(["status", "--dir", str(tmp_path / "none")]) == 3
    assert kubernetes.main(["env", "--dir", str(tmp_path / "none")]) == 3
    assert kubernetes.main(["down", "--dir", str(tmp_path / "none")]) == 0
    assert "nothing runs" in capsys.readouterr().out


@pytest.mark.long  # the conformance suite uses and repairs a cluster with nodes
def test_second_up_keeps_the_server_and_down_removes_it(
    real_apiserver: Server, short_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = short_folder / "up"
    try:
        assert kubernetes.main(["up", "--apiserver-only", "--dir", str(folder)]) == 0
        first = kubernetes.read(folder)
        assert kubernetes.main(["up", "--apiserver-only", "--dir", str(folder)]) == 0
        again = kubernetes.read(folder)
        assert first is not None
        assert again == first
        assert first.alive
        _ends_badly(first)
        assert kubernetes.main(["status", "--dir", str(folder)]) == 3
        assert kubernetes.main(["up", "--apiserver-only", "--dir", str(folder)]) == 0
        second = kubernetes.read(folder)
        assert second is not None
        assert second.alive
        assert second != first
    finally:
        assert kubernetes.main(["down", "--dir", str(folder)]) == 0
    assert not folder.exists()
    assert not any(process.alive for process in (*first.processes, *second.processes))
    assert str(folder / "kubeconfig") in capsys.readouterr().out


def _ends_badly(running: kubernetes.Running) -> None:
    for process in running.processes:
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait_gone(10)
