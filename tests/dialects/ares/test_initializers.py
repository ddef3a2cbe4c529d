"""Tests for the init container `initializer` of AresJobs, with default and with configured commands."""

import subprocess
from pathlib import Path
from typing import cast

import pytest

from argosy.dialects.ares.api import ares_job_api
from argosy.dialects.ares.initializers import (
    TEMPLATE_VARIABLES,
    Initializers,
    LocateObserver,
    ObserverAddress,
    ShellCommand,
    operator_endpoint,
)
from argosy.gotemplate import TemplateError
from argosy.kinds.aresjob import AresJob
from argosy.kinds.meta import ObjectMeta
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.rejections import SpecRejectedError
from argosy.reconcile.render import Json
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.model import Workload
from argosy.workload.plan import CreatePod

CONTEXT = RenderContext(Helper("argosy"), "https://operator", "PEM")
LAUNCHER: Json = {
    "template": {"spec": {"containers": [{"name": "mpi"}, {"name": "sidecar"}]}},
    "dependence": {"roleNames": ["worker"], "mpiHostFile": "/etc/mpi/hostfile,/etc/two/hosts,/etc/mpi/again"},
}
COMMAND = """./initializer cache --key {{.Key}} --cacheURI {{.CacheURI}} --roles {{.Roles}}
--write-mpi-hostfile-to {{.MPIHostFile}} --mpi-host-replicas {{ .ReplicasPerNode }}
--mpi-implementation {{.MPIImplementation}} # {{.Name}} {{.Namespace}} {{.RolePhase}}"""


def pod(
    launcher: Json = LAUNCHER,
    framework: str = "mpi",
    *,
    initializers: Initializers = Initializers(),
    locate: LocateObserver = operator_endpoint,
) -> Json:
    """Return the spec of the launcher's pod."""
    worker = {"template": {"spec": {"containers": [{"name": "mpi"}]}}}
    spec: Json = {"frameworkType": framework, "roleSpecs": {"launcher": launcher, "worker": worker}}
    api = ares_job_api(initializers=initializers, locate=locate)
    lowered = api.dialect.to_workload(AresJob(ObjectMeta(name="job", namespace="ns", uid="uid"), spec))
    assert isinstance(lowered, Workload), lowered
    pods = PodRenderer(CONTEXT, lambda uid: f"token-of-{uid}").for_job(lowered, api.inject)
    return cast("Json", pods.render(CreatePod("launcher", 0, 1, 0), "job-launcher-0")["spec"])


def initializer(spec: Json) -> Json:
    return cast("list[Json]", spec["initContainers"])[0]


def env(container: Json) -> dict[str, object]:
    return {
        str(variable["name"]): variable.get("value", variable.get("valueFrom"))
        for variable in cast("list[Json]", container["env"])
    }


def mounts(container: Json) -> dict[str, str]:
    volume_mounts = cast("list[dict[str, str]]", container.get("volumeMounts", []))
    return {mount["name"]: mount["mountPath"] for mount in volume_mounts}


def test_default_initializer_has_arguments_and_no_shell() -> None:
    container = initializer(pod())
    assert container["command"] == [
        *("python3", "-m", "argosy.helper", "cache", "--key", "ns.job", "--cacheURI", "$(ARGOSY_URL)"),
        *("--roles", "worker", "--phase", "Running", "--interval", "5s", "--timeout", "0"),
        *("--max-retries", "240"),
        *("--write-mpi-hostfile-to", "/etc/mpi/hostfile,/etc/two/hosts,/etc/mpi/again"),
        *("--mpi-host-replicas", "1", "--mpi-implementation", "ompi"),
        *("--hack-file", "/etc/mpi/.ares-init"),
    ]
    assert (container["name"], container["imagePullPolicy"]) == ("initializer", "IfNotPresent")
    host, own = ({"fieldRef": {"fieldPath": f"status.{name}"}} for name in ("hostIP", "podIP"))
    variables = env(container)
    assert (variables["KS_KUBE_HOST_IP"], variables["LOCAL_IP"], variables["POD_IP"]) == (host, host, own)
    assert (variables["ARGOSY_TOKEN"], variables["ARES_TOKEN"]) == ("token-of-uid", "$(ARGOSY_TOKEN)")


def test_each_folder_of_host_files_has_one_volume() -> None:
    spec = pod()
    shared = {"configurations": "/etc/mpi", "configurations-1": "/etc/two"}
    assert mounts(initializer(spec)) == shared
    assert [mounts(container) for container in cast("list[Json]", spec["containers"])] == [shared, shared]
    assert spec["volumes"] == [{"name": name, "emptyDir": {}} for name in shared]


def test_volume_of_the_user_is_used() -> None:
    mine = {"name": "mine", "mountPath": "/etc/mpi"}
    containers = [{"name": "mpi", "volumeMounts": [mine]}, {"name": "sidecar"}]
    template = {"spec": {"containers": containers, "volumes": [{"name": "mine", "emptyDir": {}}]}}
    spec = pod({**LAUNCHER, "template": template})
    assert mounts(initializer(spec)) == {"mine": "/etc/mpi", "configurations-1": "/etc/two"}
    names = [volume["name"] for volume in cast("list[Json]", spec["volumes"])]
    assert names == ["mine", "configurations-1"]


def test_configured_image_variables_and_volumes() -> None:
    chosen = Initializers("mine:1", env={"LEVEL": "2"}, volumes={"tools": "/opt/tools"})
    spec = pod(initializers=chosen)
    container = initializer(spec)
    assert container["image"] == "mine:1"
    assert list(env(container))[-2:] == ["ARES_TOKEN", "LEVEL"]
    assert mounts(container)["tools"] == "/opt/tools"
    assert {"name": "tools", "hostPath": {"path": "/opt/tools"}} in cast("list[Json]", spec["volumes"])
    assert all("tools" not in mounts(container) for container in cast("list[Json]", spec["containers"]))


MOUNT = {"name": "tools", "mountPath": "/mine"}
RESERVED = {
    "mounted by a container: rejected": (
        {"containers": [{"name": "mpi"}, {"name": "sidecar", "volumeMounts": [{"name": "a"}, MOUNT]}]},
        "containers[1].volumeMounts[1]",
    ),
    "mounted by an init container: rejected": (
        {"initContainers": [{"name": "first", "volumeMounts": [MOUNT]}], "containers": [{"name": "mpi"}]},
        "initContainers[0].volumeMounts[0]",
    ),
    "defined by the user: rejected": (
        {"volumes": [{"name": "tools", "emptyDir": {}}], "containers": [{"name": "mpi"}]},
        "volumes[0]",
    ),
}


@pytest.mark.parametrize("case", RESERVED.values(), ids=RESERVED.keys())
def test_pod_that_uses_the_name_of_a_configured_volume_is_rejected(case: tuple[Json, str]) -> None:
    spec, where = case
    reserved = Initializers(volumes={"tools": "/opt/tools"})
    with pytest.raises(SpecRejectedError) as refused:
        pod({**LAUNCHER, "template": {"spec": spec}}, initializers=reserved)
    assert str(refused.value) == (
        f"spec.roleSpecs.launcher.template.spec.{where}.name:"
        ' invalid value "tools": reserved for the init container `initializer`'
    )
    pod({**LAUNCHER, "template": {"spec": spec}})


def test_configured_command() -> None:
    chosen = Initializers(command=ShellCommand(COMMAND))
    nodes = ObserverAddress("nodePort://10.0.0.1,10.0.0.2:30037", tls=False)
    container = initializer(pod(initializers=chosen, locate=lambda host_network: nodes))
    assert container["command"] == [
        "/bin/bash",
        "-c",
        "./initializer cache --key ns.job --cacheURI nodePort://10.0.0.1,10.0.0.2:30037 --roles worker"
        " --write-mpi-hostfile-to /etc/mpi/hostfile,/etc/two/hosts,/etc/mpi/again --mpi-host-replicas 1"
        " --mpi-implementation ompi # job ns Running",
    ]
    assert (env(container)["ARGOSY_URL"], env(container)["ARGOSY_CA"]) == (nodes.uri, "")


def test_dependency_without_host_files_has_no_host_file() -> None:
    chosen = Initializers(command=ShellCommand(COMMAND))
    waits: Json = {**LAUNCHER, "dependence": {"roleNames": ["worker"], "rolePhase": "Succeeded"}}
    command = cast("list[str]", initializer(pod(waits, "custom", initializers=chosen))["command"])[2]
    assert "--write-mpi-hostfile-to '' --mpi-host-replicas 0 --mpi-implementation ''" in command
    assert command.endswith("Succeeded")


def test_values_are_quoted_for_the_shell() -> None:
    evil = "/etc/x/$(reboot); a 'b'"
    launcher: Json = {**LAUNCHER, "dependence": {"roleNames": ["worker"], "mpiHostFile": evil}}
    chosen = Initializers(command=ShellCommand("write {{.MPIHostFile}}"))
    command = cast("list[str]", initializer(pod(launcher, initializers=chosen))["command"])[2]
    assert command == """write '/etc/x/$(reboot); a '"'"'b'"'"''"""


def test_pod_in_the_host_network_uses_that_address_and_keeps_its_dns_policy() -> None:
    template = {"spec": {"hostNetwork": True, "containers": [{"name": "mpi"}]}}
    where = {True: ObserverAddress("https://10.96.0.7"), False: ObserverAddress("https://operator")}
    spec = pod({**LAUNCHER, "template": template}, locate=where.__getitem__)
    assert env(initializer(spec))["ARGOSY_URL"] == "https://10.96.0.7"
    assert "dnsPolicy" not in spec


@pytest.mark.parametrize("wrong", ["{{.Key", "{{.Nonsense}}", "{{upper .Key}}", "{{if .Key}}a"])
def test_invalid_command_is_rejected(wrong: str) -> None:
    with pytest.raises(TemplateError):
        ShellCommand(wrong)


SAFE = {
    "separate word": "echo {{.MPIHostFile}}",
    "after closed quotes": """echo "it's" 'so' {{.MPIHostFile}}""",
    "in a command substitution inside quotes": 'echo "$(echo {{.MPIHostFile}})"',
    "after an escaped backslash": r"echo \\{{.MPIHostFile}}",
    "in a subshell": "(echo {{.MPIHostFile}})",
    "part of a word": "echo --to={{.MPIHostFile}}",
    "input of a redirection": "cat < {{.MPIHostFile}} || true",
    "in a comment with an apostrophe": "echo a # don't {{.MPIHostFile}}",
}


@pytest.mark.parametrize("template", SAFE.values(), ids=SAFE.keys())
def test_value_in_a_command_is_not_executed(template: str, tmp_path: Path) -> None:
    """The command runs in a real shell, with a value that closes every kind of quotes."""
    proof = tmp_path / "run"
    evil = f"""'"`touch {proof}`$(touch {proof})'; touch {proof} #"""
    command = ShellCommand(template).argv({**dict.fromkeys(TEMPLATE_VARIABLES, ""), "MPIHostFile": evil})
    subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert not proof.exists()


QUOTED = {
    "single quotes": "echo '{{.MPIHostFile}}'",
    "double quotes": 'echo "{{.MPIHostFile}}"',
    "inside a quoted sentence": 'echo "to {{.MPIHostFile}} and on"',
    "quotes in a command substitution": 'echo "$(echo "{{.MPIHostFile}}")"',
    "ANSI-C quotes": r"echo $'\'{{.MPIHostFile}}'",
    "escaped quote inside double quotes": r'echo "\"{{.MPIHostFile}}"',
    "backticks": "echo `echo {{.MPIHostFile}}`",
    "arithmetic expansion": "echo $(({{.MPIHostFile}}))",
    "default value of a variable": "echo ${NONE:-{{.MPIHostFile}}}",
    "after a backslash": r"echo \{{.MPIHostFile}}",
    "quotes in a condition": "echo {{if .Key}}'{{.MPIHostFile}}'{{end}}",
}


@pytest.mark.parametrize("template", QUOTED.values(), ids=QUOTED.keys())
def test_command_with_quotes_around_a_variable_is_rejected(template: str) -> None:
    with pytest.raises(TemplateError, match=r"\{\{.MPIHostFile\}\}: must not be inside quotes"):
        ShellCommand(template)
