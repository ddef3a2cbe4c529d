"""What the flags of `argosy operator` and `argosy observer` mean, that they win over the file, and how
both run."""

import contextlib
import multiprocessing
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from msgspec import Struct

from argosy.cli.observer import observer
from argosy.cli.operator import operator
from argosy.cli.server_options import run_operator
from argosy.operator.observer_locator import Observers
from argosy.operator.settings import Settings

FILE = "{cache: {observer: {auth: none}}, operator: {clusterDomain: from.file, gang: {backend: auto}}}"


class Case(Struct):
    words: list[str]
    want: dict[str, object]


OPERATOR = {
    "without any": Case([], {"metrics": ":8080", "probes": ":8081", "namespace": None, "leader_elect": True}),
    "those of the original": Case(
        [
            *("--metrics-bind-address", ":9080", "--health-probe-bind-address", ":9081"),
            *("--namespace", "team", "--leader-elect"),
        ],
        {"metrics": ":9080", "probes": ":9081", "namespace": "team", "leader_elect": True},
    ),
    "an empty namespace is all of them": Case(["--namespace", ""], {"namespace": None}),
    "the file alone": Case(
        ["--config", FILE],
        {
            "cluster_domain": "from.file",
            "observers": Observers(tokens=False),
            "observer_tokens": False,
            "gang_backend": "auto",
        },
    ),
    "flags beside it": Case(
        ["--config", FILE, "--cluster-domain", "from.flag", "--gang-backend", "own"],
        {"cluster_domain": "from.flag", "gang_backend": "own"},
    ),
    "pods find the operator under its own name": Case(
        ["--name", "mine", "--operator-namespace", "home"], {"url": "https://mine.home.svc"}
    ),
    "or elsewhere": Case(["--advertise-url", "https://other"], {"url": "https://other"}),
    "every feature is on unless it is switched off": Case([], {"remote_exec": True, "ssh_keys": True}),
    "features switched off": Case(
        ["--no-remote-exec", "--no-ssh-keys"], {"remote_exec": False, "ssh_keys": False}
    ),
    "webhooks": Case(["--webhooks", "mine"], {"webhooks": "mine"}),
    "who places gangs, if nobody says": Case([], {"gang_backend": "volcano"}),
}
OBSERVER = {
    "with tokens it answers over TLS alone": Case([], {"observer_tokens": True, "plain_endpoint": ""}),
    "without, in plain HTTP too, where the original did": Case(
        ["--auth", "none"], {"observer_tokens": False, "plain_endpoint": ":80"}
    ),
    "the file says it as well": Case(["--config", FILE], {"observer_tokens": False, "plain_endpoint": ":80"}),
    "and the flag wins": Case(["--config", FILE, "--auth", "token"], {"observer_tokens": True}),
    "on another port": Case(["--auth", "none", "--port", "8000"], {"plain_endpoint": ":8000"}),
    "it leads nothing, places nothing and serves AresJobs alone, whatever the file says": Case(
        ["--config", FILE],
        {"observing": True, "leader_elect": False, "apis": frozenset({"ares"}), "gang_backend": "none"},
    ),
}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """With which settings something was started."""
    found: list[Settings] = []
    for name in ("operator", "observer"):
        monkeypatch.setattr(f"argosy.cli.{name}.run_operator", found.append)
    return found


@pytest.mark.parametrize("case", OPERATOR.values(), ids=OPERATOR.keys())
def test_operator(case: Case, started: list[Settings], tmp_path: Path) -> None:
    done = CliRunner().invoke(operator, _words(case, tmp_path), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert {name: getattr(started[0], name) for name in case.want} == case.want


@pytest.mark.parametrize("case", OBSERVER.values(), ids=OBSERVER.keys())
def test_observer(case: Case, started: list[Settings], tmp_path: Path) -> None:
    done = CliRunner().invoke(observer, _words(case, tmp_path), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert {name: getattr(started[0], name) for name in case.want} == case.want


def _words(case: Case, folder: Path) -> list[str]:
    (folder / "config.yaml").write_text(FILE)
    return [str(folder / "config.yaml") if word == FILE else word for word in case.words]


def test_an_operator_waits_for_its_turn_on_a_core(tmp_path: Path) -> None:
    child = multiprocessing.get_context("spawn").Process(target=_start_in_vain, args=(tmp_path / "none",))
    child.start()
    child.join(60)
    assert child.exitcode == os.SCHED_BATCH


def _start_in_vain(kubeconfig: Path) -> None:
    """End with the policy by which this process gets its turns."""
    with contextlib.suppress(click.ClickException):
        run_operator(Settings(kubeconfig=kubeconfig))
    raise SystemExit(os.sched_getscheduler(0))
