"""Tests for the node agent with a real API server and real pods."""

import asyncio
import contextlib
import functools
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from argosy.engine.errors import Gone
from argosy.kinds.kubernetes import ConfigMap, Event, Pod, Service
from argosy.local.agent_token import agent_token
from argosy.local.node import cgroups, namespace_holder, pod_state, shim_manager
from argosy.local.service_types import PersistentVolumeClaim
from tests.support.agents import Machine, machine

pytestmark = [pytest.mark.root, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here() -> AsyncIterator[Machine]:
    """One machine for all tests of this module; each leaves it as it was."""
    async with machine() as running:
        yield running


FOREVER = "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"


async def test_a_pod_runs_and_its_result_log_and_address_are_reported(here: Machine) -> None:
    await here.run("one", "echo hello from $HOSTNAME; echo bad >&2; exit 3")
    pod = await here.phase("one", "Failed")
    ended = pod.status.container_statuses[0].state.terminated
    assert ended is not None
    assert (ended.exit_code, ended.reason) == (3, "Error")
    assert pod.status.pod_ip.startswith("10.88.0.")
    assert sorted((await here.logs("one")).splitlines()) == ["bad", "hello from one"]
    await here.client.delete(Pod, "one", "default")
    await here.gone("one")


async def test_pods_reach_services_other_pods_and_the_api_server_by_name(
    here: Machine,
) -> None:
    await here.client.create(
        Service,
        {
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}]},
        },
        "default",
    )
    await here.client.create(
        Service,
        {
            "metadata": {"name": "peers"},
            "spec": {"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 8000}]},
        },
        "default",
    )
    await here.run(
        "web",
        "mkdir /srv/www && cd /srv/www && echo served > x && exec python3 -m http.server 8000",
        labels={"app": "web"},
        hostname="w0",
        subdomain="peers",
        container={"readinessProbe": {"httpGet": {"port": 8000}, "periodSeconds": 1}},
    )
    await here.wait(
        "web", lambda pod: any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
    )
    await here.run(
        "client",
        "python3 - <<'E'\n"
        "import socket, ssl, urllib.request as u\n"
        "for name in ('web', 'peers:8000', 'w0.peers.default.svc.cluster.local:8000'):\n"
        "    print(u.urlopen(f'http://{name}/x', timeout=5).read().decode().strip())\n"
        "ca = '/var/run/secrets/kubernetes.io/serviceaccount/ca.crt'\n"
        "context = ssl.create_default_context(cafile=ca)\n"
        "context.check_hostname = False\n"
        "url = 'https://kubernetes.default/readyz'\n"
        "print(u.urlopen(url, context=context, timeout=5).read().decode())\n"
        "E",
    )
    await here.wait("client", lambda pod: pod.status.phase in ("Succeeded", "Failed"))
    assert (await here.logs("client")).split() == ["served", "served", "served", "ok"]


async def test_a_pod_outlives_its_agent_and_the_next_agent_adopts_it(here: Machine) -> None:
    await here.run("steady", FOREVER)
    before = await here.phase("steady", "Running")
    here.kill()
    here.start()
    await here.run("later", "exit 0")
    await here.phase("later", "Succeeded")
    after = await here.phase("steady", "Running")
    assert after.status.container_statuses[0].restart_count == 0
    started = before.status.container_statuses[0].state.running
    assert after.status.container_statuses[0].state.running == started
    code = await here.client.exec("steady", "default", ["sh", "-c", "exit 7"])
    assert code == 7
    await here.client.delete(Pod, "steady", "default", grace_seconds=5)
    await here.gone("steady")


async def test_a_pod_can_be_deleted_at_any_time_while_it_starts(here: Machine) -> None:
    moments = [milliseconds / 1000 for milliseconds in range(0, 160, 10)]
    for number, moment in enumerate(moments):
        await here.run(f"early-{number}", FOREVER, terminationGracePeriodSeconds=1)
        await asyncio.sleep(moment)
        await here.client.delete(Pod, f"early-{number}", "default")
    for number in range(len(moments)):
        await here.gone(f"early-{number}")


async def test_a_pod_deleted_while_the_agent_was_down_is_ended_when_it_starts(here: Machine) -> None:
    await here.run("doomed", FOREVER)
    pod = await here.phase("doomed", "Running")
    here.kill()
    await here.client.delete(Pod, "doomed", "default", grace_seconds=0)
    folder = here.state / "pods" / pod.metadata.uid
    assert shim_manager.has_shim(folder)
    here.start()
    await _until(lambda: not folder.exists())


async def test_logs_of_a_deleted_pod_are_kept_for_the_retention_period(here: Machine) -> None:
    """It failed while its agent was away, and was deleted as soon as that was seen."""
    await here.run("brief", "echo first; trap 'echo last; exit 3' TERM; while :; do sleep 0.05; done")
    uid = (await here.phase("brief", "Running")).metadata.uid
    here.kill()
    state = pod_state.read_state(here.state / "pods" / uid)
    assert state is not None
    os.kill(state["pid"], signal.SIGTERM)
    await _until(lambda: not shim_manager.has_shim(here.state / "pods" / uid))
    here.start()
    await here.phase("brief", "Failed")
    await here.client.delete(Pod, "brief", "default")
    await here.gone("brief")
    await here.run("brief", "echo another", restartPolicy="Always")
    lines = [
        piece async for piece in here.client.logs("brief", "default", container="main", uid=uid, follow=True)
    ]
    assert b"".join(lines) == b"first\nlast\n"
    with pytest.raises(Gone):
        [piece async for piece in here.client.logs("brief", "default", container="main", uid=uid, run=1)]
    with pytest.raises(Gone):
        [piece async for piece in here.client.logs("other", "default", container="main", uid=uid)]
    await _until(lambda: not (here.state / "pods" / uid).exists())
    with pytest.raises(Gone):
        [piece async for piece in here.client.logs("brief", "default", container="main", uid=uid)]


async def test_logs_are_served_while_the_api_server_is_unreachable(here: Machine) -> None:
    await here.run("quiet", "echo something; exit 1")
    uid = (await here.phase("quiet", "Failed")).metadata.uid
    here.kill()
    kubeconfig = here.state / "kubeconfigs" / "node"
    right = kubeconfig.read_text()
    kubeconfig.write_text(right.replace("apiserver.sock", "nowhere.sock"))
    try:
        here.start()
        path = f"/containerLogs/default/quiet/main?uid={uid}"
        await _until(lambda: b"something" in _ask_agent(here, path))
        assert b" 503 " in _ask_agent(here, "/containerLogs/default/unknown/main?uid=x").splitlines()[0]
    finally:
        here.kill()
        kubeconfig.write_text(right)
        here.start()


async def test_a_pod_with_an_unsupported_volume_waits_with_an_event_that_names_it(here: Machine) -> None:
    await here.run(
        "remote",
        "touch /data/checkpoint",
        container={"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
        volumes=[{"name": "data", "nfs": {"server": "files", "path": "/"}}],
    )
    event = await here.event("remote", "FailedMount")
    assert event.message.startswith(
        'volume "data": nfs is not supported on this node; supported are configMap'
    )
    pod = await here.wait("remote", lambda pod: pod.status.container_statuses)
    waiting = pod.status.container_statuses[0].state.waiting
    assert (pod.status.phase, waiting and waiting.reason) == ("Pending", "ContainerCreating")
    await here.client.delete(Pod, "remote", "default")
    await here.gone("remote")


async def test_a_pod_waits_for_its_claim_whose_folder_is_deleted_with_it(here: Machine) -> None:
    volume: dict[str, object] = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    claim: dict[str, object] = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await here.run("writer", "ls -A /v; echo kept > /v/x", container=mounts, volumes=[volume])
    event = await here.event("writer", "FailedMount")
    assert event.message == 'persistentvolumeclaim "data" not found'
    assert (await here.client.get(Pod, "writer", "default")).status.phase == "Pending"
    for _ in range(2):
        created = await here.client.create(PersistentVolumeClaim, claim, "default")
        await here.phase("writer", "Succeeded")
        assert await here.logs("writer") == "", "a claim begins empty"
        await here.run("reader", "cat /v/x", container=mounts, volumes=[volume], nodeName="node-2")
        await here.phase("reader", "Succeeded")
        assert await here.logs("reader") == "kept\n"
        folder = here.state / "volumes" / "default" / f"data_{created.metadata.uid}"
        assert folder.is_dir()
        for name in ("writer", "reader"):
            await here.client.delete(Pod, name, "default")
            await here.gone(name)
        await here.client.delete(PersistentVolumeClaim, "data", "default")
        await _until(functools.partial(_absent, folder))
        await here.run("writer", "ls -A /v; echo kept > /v/x", container=mounts, volumes=[volume])
    await here.client.delete(Pod, "writer", "default")
    await here.gone("writer")


def _absent(path: Path) -> bool:
    return not path.exists()


async def test_the_folder_of_a_claim_deleted_while_the_agent_was_down_is_removed_when_it_starts(
    here: Machine,
) -> None:
    body: dict[str, object] = {
        "metadata": {"name": "brief"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    claim = await here.client.create(PersistentVolumeClaim, body, "default")
    volume: dict[str, object] = {"name": "v", "persistentVolumeClaim": {"claimName": "brief"}}
    await here.run(
        "short", "exit 0", container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, volumes=[volume]
    )
    await here.phase("short", "Succeeded")
    folder = here.state / "volumes" / "default"
    (folder / "of-another-program").mkdir()
    here.kill()
    await here.client.delete(PersistentVolumeClaim, "brief", "default")
    here.start()
    await _until(lambda: not (folder / f"brief_{claim.metadata.uid}").exists())
    assert (folder / "of-another-program").is_dir()


async def test_a_container_with_run_as_non_root_that_would_be_root_waits(here: Machine) -> None:
    await here.run("modest", "exit 0", securityContext={"runAsNonRoot": True})
    pod = await here.wait("modest", lambda pod: pod.status.container_statuses)
    waiting = pod.status.container_statuses[0].state.waiting
    assert waiting is not None
    assert waiting.reason == "CreateContainerConfigError"
    assert waiting.message.startswith("container has runAsNonRoot and image will run as root")
    await here.client.delete(Pod, "modest", "default")
    await here.gone("modest")


async def test_an_event_says_once_that_an_image_is_the_machines_root(here: Machine) -> None:
    """Whatever the number of its containers and restarts, and of agents that looked after the pod."""
    second = {"name": "second", "image": "other:1", "command": ["/bin/sh", "-c", FOREVER]}
    first = {"name": "main", "image": "host", "command": ["/bin/sh", "-c", "sleep 0.1; exit 1"]}
    await here.run("plain", "", restartPolicy="Always", containers=[first, second])
    await here.wait("plain", lambda pod: any(s.restart_count > 1 for s in pod.status.container_statuses))
    here.kill()
    here.start()
    await here.wait("plain", lambda pod: any(s.restart_count > 3 for s in pod.status.container_statuses))
    event = await here.event("plain", "ImageNotPulled")
    assert (event.type, event.count) == ("Normal", 1)
    assert event.message.startswith(
        'No image is pulled here: "host", "other:1" runs on this machine\'s own root'
    )
    events = [e for e in (await here.client.list(Event, "default")).items if e.reason == event.reason]
    assert len([e for e in events if e.involved_object.name == "plain"]) == 1
    await here.client.delete(Pod, "plain", "default", grace_seconds=0)


async def test_every_pod_has_a_cgroup_that_is_removed_with_it(here: Machine) -> None:
    hierarchy = cgroups.find_hierarchy()
    if hierarchy is None:
        pytest.skip("no cgroup that may be written")
    await here.run("grouped", f"setsid sleep 1000 & {FOREVER}")
    pod = await here.phase("grouped", "Running")
    paths = hierarchy.paths(f"{shim_manager.pods_cgroup(here.state / 'pods')}/{pod.metadata.uid}")
    assert all((path / "main" / "cgroup.procs").read_text() for path in paths)
    await here.client.delete(Pod, "grouped", "default", grace_seconds=0)
    await _until(lambda: not any(path.exists() for path in paths))


async def test_a_pod_with_a_forbidden_sysctl_fails(here: Machine) -> None:
    sysctls = [{"name": "kernel.msgmax", "value": "65536"}]
    await here.run("tuned", "exit 0", securityContext={"sysctls": sysctls})
    pod = await here.phase("tuned", "Failed")
    assert pod.status.reason == "SysctlForbidden"
    assert pod.status.message == 'Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted'
    await here.client.delete(Pod, "tuned", "default")
    await here.gone("tuned")


async def test_mount_paths_cannot_reach_the_host_while_a_container_is_created(
    here: Machine, tmp_path: Path
) -> None:
    """The host's root has a random name, so that no mount path of a pod can refer to it."""
    names = [f"/.argosy-host{tmp_path}/made", "/.argosy-host/etc/argosy-made"]
    mounts = [{"name": "v", "mountPath": name} for name in names]
    await here.run(
        "climber",
        "exit 0",
        container={"volumeMounts": mounts, "terminationMessagePath": f"/.argosy-host{tmp_path}/message"},
        volumes=[{"name": "v", "emptyDir": {}}],
    )
    await here.phase("climber", "Succeeded")
    assert _made_on_the_host(tmp_path) == []


def _made_on_the_host(folder: Path) -> list[Path]:
    return [*folder.iterdir(), *Path("/etc").glob("argosy-made*")]


async def test_a_service_annotated_with_the_agents_socket_reaches_nothing(here: Machine) -> None:
    """Neither by the annotation of the operator's own Service, nor to exec in anybody's container."""
    await here.run("victim", FOREVER)
    victim = await here.phase("victim", "Running")
    for name in ("agent", "argosy-operator"):
        body: dict[str, object] = {
            "metadata": {"name": name, "annotations": {"argosy.dev/unix-socket": "agent"}},
            "spec": {"ports": [{"port": 80}]},
        }
        await here.client.create(Service, body, "default")
    path = f"/exec/default/victim/main?uid={victim.metadata.uid}&command=id&stdout=true"
    script = (
        "import socket\n"
        "for name in ('agent', 'argosy-operator'):\n"
        "    with socket.create_connection((name, 80), timeout=10) as client:\n"
        f"        client.sendall(b'GET {path} HTTP/1.1\\r\\nHost: agent\\r\\n\\r\\n')\n"
        "        print('answer', client.recv(4096))\n"
    )
    await here.run(
        "thief", 'exec python3 -c "$SCRIPT"', container={"env": [{"name": "SCRIPT", "value": script}]}
    )
    await here.wait("thief", lambda pod: pod.status.phase in ("Succeeded", "Failed"))
    assert "HTTP/1.1" not in await here.logs("thief")


async def test_the_agent_answers_only_requests_with_the_api_servers_token(here: Machine) -> None:
    await here.run("private", "echo something")
    uid = (await here.phase("private", "Succeeded")).metadata.uid
    path = f"/containerLogs/default/private/main?uid={uid}"
    assert b" 401 " in _ask_agent(here, path, token="").splitlines()[0]
    assert b" 401 " in _ask_agent(here, path, token="guessed").splitlines()[0]
    assert b"something" in _ask_agent(here, path)
    assert (here.state / "agent.token").stat().st_mode & 0o777 == 0o600


def _ask_agent(here: Machine, path: str, token: str | None = None) -> bytes:
    token = agent_token(here.state) if token is None else token
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(here.state / "agent.sock"))
        except OSError:
            return b""
        head = f"GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\nAuthorization: Bearer {token}"
        client.sendall(f"{head}\r\n\r\n".encode())
        return client.makefile("rb").read()


async def test_a_pod_whose_shim_was_killed_restarts_by_its_restart_policy(here: Machine) -> None:
    await here.run("again", FOREVER, restartPolicy="Always")
    await here.run("once", FOREVER)
    for name in ("again", "once"):
        pod = await here.phase(name, "Running")
        state = pod_state.read_state(here.state / "pods" / pod.metadata.uid)
        assert state is not None
        os.kill(state["pid"], signal.SIGKILL)
    failed = await here.phase("once", "Failed")
    ended = failed.status.container_statuses[0].state.terminated
    assert ended is not None
    assert ended.exit_code == 137
    await here.wait("again", lambda pod: pod.status.container_statuses[0].restart_count == 1)
    await here.phase("again", "Running")


async def test_a_pod_waits_for_its_config_map_and_sees_changes_of_it(here: Machine) -> None:
    await here.run(
        "reader",
        "while ! grep -q two /etc/settings/value; do sleep 0.05; done; echo saw it",
        volumes=[{"name": "v", "configMap": {"name": "settings"}}],
        container={
            "volumeMounts": [{"name": "v", "mountPath": "/etc/settings"}],
            "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "value"}}}],
        },
    )

    def held_up(pod: Pod) -> bool:
        states = pod.status.container_statuses
        waiting = states[0].state.waiting if states else None
        return waiting is not None and waiting.reason == "CreateContainerConfigError"

    await here.wait("reader", held_up)
    await here.client.create(
        ConfigMap, {"metadata": {"name": "settings"}, "data": {"value": "one"}}, "default"
    )
    await here.phase("reader", "Running")
    await here.client.patch(ConfigMap, "settings", {"data": {"value": "two"}}, "default")
    await here.phase("reader", "Succeeded")


async def test_a_pod_reads_neither_the_state_folder_nor_another_pods_files(here: Machine) -> None:
    await here.run("spy", f"cat {here.state}/tokens.json; ls {here.state} | wc -l; ls -A /root /home")
    await here.phase("spy", "Succeeded")
    text = await here.logs("spy")
    assert "testing-admin" not in text


async def test_a_pod_ends_at_its_active_deadline(here: Machine) -> None:
    await here.run("slow", FOREVER, activeDeadlineSeconds=1, terminationGracePeriodSeconds=1)
    pod = await here.phase("slow", "Failed")
    assert pod.status.reason == "DeadlineExceeded"


async def test_stopping_the_node_leaves_no_processes_and_mounts() -> None:
    async with machine() as here:
        await here.run("one", FOREVER)
        pod = await here.phase("one", "Running")
        here.kill(signal.SIGTERM)
        folder = here.state / "pods" / pod.metadata.uid
        assert shim_manager.has_shim(folder), "a stopped agent leaves its pods running"
        here.stop_pods()
        assert not shim_manager.has_shim(folder)
        assert namespace_holder.find(here.state / "pods") is None


@pytest.mark.parametrize("count", [60, pytest.param(500, marks=[pytest.mark.long, pytest.mark.timeout(400)])])
async def test_many_pods_leave_no_processes_and_mounts(here: Machine, count: int) -> None:
    slots = asyncio.Semaphore(30)

    async def live(number: int) -> None:
        async with slots:
            name = f"pod-{count}-{number + 1}"
            await here.run(name, "exit 0")
            await here.wait(name, lambda pod: pod.status.phase == "Succeeded", 60)
            await here.client.delete(Pod, name, "default")
            await here.gone(name, 60)

    await live(-1)  # the bridge and the zygote come with the first pod
    others = {pod.metadata.uid for pod in (await here.client.list(Pod)).items}
    await _until(lambda: set(_folders(here)) <= others, 60)
    before = _traces(here)
    await asyncio.gather(*(live(number) for number in range(count)))
    with contextlib.suppress(TimeoutError):
        await _until(lambda: _traces(here) == before, 60)
    after = _traces(here)
    assert {what: traces for what, traces in after.items() if traces != before[what]} == {}


def _traces(here: Machine) -> dict[str, object]:
    """What pods could leave: folders, interfaces, mounts, processes, zombies."""
    keeper = namespace_holder.find(here.state / "pods")
    links = subprocess.run(
        ["nsenter", "-t", str(keeper), "-n", "cat", "/proc/net/dev"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    space = Path(f"/proc/{keeper}/ns/net").readlink()
    mine, zombies = 0, 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
            if str(here.state).encode() in line and b"zygote" in line:
                mine += 1
            parent = (entry / "stat").read_text().rpartition(")")[2].split()
            if parent[0] == "Z" and Path(f"/proc/{parent[1]}/ns/net").readlink() == space:
                zombies += 1
        except OSError:
            continue
    return {
        "folders": _folders(here),
        "links": sorted(line.split(":")[0].strip() for line in links.splitlines() if ":" in line),
        "mounts": sum(str(here.state) in line for line in Path("/proc/mounts").read_text().splitlines()),
        "zombies": zombies,
        "processes": min(mine, 1),
    }


def _folders(here: Machine) -> list[str]:
    return sorted(path.name for path in (here.state / "pods").iterdir() if path.is_dir())


async def _until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    for _ in range(int(seconds / 0.05)):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise TimeoutError("the condition was not met in time")
