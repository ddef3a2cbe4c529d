"""Settings of `argosy operator` and `argosy observer`: options override the configuration file."""

import contextlib
import multiprocessing
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from msgspec import Struct, field

from argosy.cli.observer import observer
from argosy.cli.operator import operator
from argosy.cli.server_options import run_operator
from argosy.dialects.et.settings import EtSettings
from argosy.operator.apis.ares.settings import ObserverService, ares_settings
from argosy.operator.apis.et import et_settings
from argosy.operator.apis.registry import APIS
from argosy.operator.settings import Settings
from argosy.workload.announcements import NoticeCause, NoticeRules
from argosy.workload.model import ReplacementBudget
from argosy.workload.quarantine import QuarantineRules

ET_SETTINGS = {
    "no options: defaults of et-operator": ([], EtSettings()),
    "all options, in the spelling of et-operator: used": (
        [
            *("--create-ssh-secret=false", "--init-container-image=busybox:1"),
            *("--below-min-timeout=60", "--worker-replacement-limit=3"),
        ],
        EtSettings(
            create_ssh_secret=False,
            init_container_image="busybox:1",
            below_min_timeout=60.0,
            worker_budget=ReplacementBudget(limit=3),
        ),
    ),
    "flag without a value: on": (["--create-ssh-secret", "--api", "et"], EtSettings()),
}

FILE = "{cache: {observer: {auth: none}}, operator: {clusterDomain: from.file, gang: {backend: auto}}}"


class Case(Struct):
    arguments: list[str]
    want: dict[str, object]
    want_ares: dict[str, object] = field(default_factory=dict)


OPERATOR = {
    "no options: defaults": Case(
        [], {"metrics_address": ":8080", "probe_address": ":8081", "namespace": None, "leader_elect": True}
    ),
    "options of AresOperator: accepted": Case(
        [
            *("--metrics-bind-address", ":9080", "--health-probe-bind-address", ":9081"),
            *("--namespace", "team", "--leader-elect"),
        ],
        {"metrics_address": ":9080", "probe_address": ":9081", "namespace": "team", "leader_elect": True},
    ),
    "options of et-operator: accepted": Case(
        ["--metrics-addr", ":9080", "--enable-leader-election"],
        {"metrics_address": ":9080", "leader_elect": True},
    ),
    "no options: all APIs with their defaults": Case([], {"apis": APIS}),
    "empty namespace: all namespaces": Case(["--namespace", ""], {"namespace": None}),
    "configuration file without options: its values are used": Case(
        ["--config", FILE],
        {
            "cluster_domain": "from.file",
            "gang_backend": "auto",
        },
        {"observers": ObserverService(require_tokens=False), "require_tokens": False},
    ),
    "configuration file and options: options win": Case(
        ["--config", FILE, "--cluster-domain", "from.flag", "--gang-backend", "builtin"],
        {"cluster_domain": "from.flag", "gang_backend": "builtin"},
    ),
    "name and namespace of the operator: the URL for pods follows": Case(
        ["--name", "mine", "--operator-namespace", "home"], {"url": "https://mine.home.svc"}
    ),
    "advertised URL: used for pods": Case(["--advertise-url", "https://other"], {"url": "https://other"}),
    "no options: all features are on": Case([], {"remote_exec": True, "ssh_keys": True}),
    "features switched off by options": Case(
        ["--no-remote-exec", "--no-ssh-keys"], {"remote_exec": False, "ssh_keys": False}
    ),
    "name of the webhook configurations": Case(["--webhooks", "mine"], {"webhooks": "mine"}),
    "no gang backend: volcano": Case([], {"gang_backend": "volcano"}),
    "no options for notices: taints of the clouds, no cordon": Case([], {"notices": NoticeRules()}),
    "taints and cordon as notices": Case(
        ["--notice-taints", "a/b=Drained", "--cordon-is-notice"],
        {"notices": NoticeRules({"a/b": NoticeCause.DRAINED}, cordon=True)},
    ),
    "no quarantine by default": Case([], {"quarantine": QuarantineRules()}),
    "quarantine with rules": Case(
        ["--quarantine", "failures=5,window=1m"],
        {"quarantine": QuarantineRules(enabled=True, failures=5, window=60)},
    ),
    "no taint is a notice": Case(["--notice-taints", ""], {"notices": NoticeRules({})}),
}
OBSERVER = {
    "no options: tokens required, no plain HTTP": Case([], {"http_endpoint": ""}, {"require_tokens": True}),
    "--auth none: plain HTTP on port 80": Case(
        ["--auth", "none"], {"http_endpoint": ":80"}, {"require_tokens": False}
    ),
    "configuration file with auth none: plain HTTP on port 80": Case(
        ["--config", FILE], {"http_endpoint": ":80"}, {"require_tokens": False}
    ),
    "configuration file with auth none and --auth token: token wins": Case(
        ["--config", FILE, "--auth", "token"], {"http_endpoint": ""}, {"require_tokens": True}
    ),
    "--port: plain HTTP on this port": Case(["--auth", "none", "--port", "8000"], {"http_endpoint": ":8000"}),
    "configuration file with a gang backend: ignored, no leader election, AresJobs only": Case(
        ["--config", FILE],
        {"endpoint_only": True, "leader_elect": False, "gang_backend": "none"},
    ),
}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Collect the settings of every start."""
    settings: list[Settings] = []
    for name in ("operator", "observer"):
        monkeypatch.setattr(f"argosy.cli.{name}.run_operator", settings.append)
    return settings


@pytest.mark.parametrize("case", OPERATOR.values(), ids=OPERATOR.keys())
def test_settings_of_the_operator(case: Case, started: list[Settings], tmp_path: Path) -> None:
    done = CliRunner().invoke(operator, _arguments(case, tmp_path), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    _check(started[0], case)


@pytest.mark.parametrize(("arguments", "want"), ET_SETTINGS.values(), ids=ET_SETTINGS.keys())
def test_settings_of_trainingjobs(
    arguments: list[str], want: EtSettings, started: list[Settings], tmp_path: Path
) -> None:
    case = Case(["--config", FILE, *arguments], {})
    done = CliRunner().invoke(operator, _arguments(case, tmp_path), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert et_settings(started[0]) == want


INVALID = {
    "option of an API that is not served: rejected": (
        ["--api", "ares", "--create-ssh-secret"],
        "--create-ssh-secret: not supported without --api et",
    ),
    "number below its minimum: rejected": (
        ["--below-min-timeout", "0"],
        "Invalid value for '--below-min-timeout': 0.0 is not in the range x>=1.",
    ),
}


@pytest.mark.parametrize(("arguments", "want"), INVALID.values(), ids=INVALID.keys())
def test_invalid_options(arguments: list[str], want: str, started: list[Settings]) -> None:
    done = CliRunner().invoke(operator, arguments)
    assert (done.exit_code, started) == (2, [])
    assert want in done.output


@pytest.mark.parametrize("case", OBSERVER.values(), ids=OBSERVER.keys())
def test_settings_of_the_observer(case: Case, started: list[Settings], tmp_path: Path) -> None:
    done = CliRunner().invoke(observer, _arguments(case, tmp_path), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    _check(started[0], case)


def _check(settings: Settings, case: Case) -> None:
    ares = ares_settings(settings)
    assert {name: getattr(settings, name) for name in case.want} == case.want
    assert {name: getattr(ares, name) for name in case.want_ares} == case.want_ares


def _arguments(case: Case, folder: Path) -> list[str]:
    (folder / "config.yaml").write_text(FILE)
    return [str(folder / "config.yaml") if argument == FILE else argument for argument in case.arguments]


def test_the_operator_runs_with_batch_scheduling(tmp_path: Path) -> None:
    child = multiprocessing.get_context("spawn").Process(
        target=_exit_with_scheduling_policy, args=(tmp_path / "none",)
    )
    child.start()
    child.join(60)
    assert child.exitcode == os.SCHED_BATCH


def _exit_with_scheduling_policy(kubeconfig: Path) -> None:
    """Try to start the operator, then exit with the scheduling policy of this process."""
    with contextlib.suppress(click.ClickException):
        run_operator(Settings(kubeconfig=kubeconfig))
    raise SystemExit(os.sched_getscheduler(0))
