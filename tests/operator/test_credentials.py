"""Tests for credentials that change while replicas run: all reload them, and only the leader writes."""

import asyncio
import secrets
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import cast

import pytest
from click.testing import CliRunner, Result
from msgspec import Struct

from argosy.cli.keys import rotate_keys
from argosy.engine.clock import SystemClock
from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import NotFound
from argosy.kinds.aresjob import AresJob
from argosy.kinds.kubernetes import Pod, Secret
from argosy.operator import credentials, endpoint, endpoint_credentials
from argosy.operator.apis.ares import observer
from argosy.operator.apis.ares.api import ares_api
from argosy.operator.apis.ares.settings import AresSettings, ObserverService
from argosy.operator.credentials import (
    CredentialMaintainer,
    Credentials,
    IssuedSecret,
    SecretStore,
    load_or_create,
    rotate,
    wait_for_credentials,
)
from argosy.operator.endpoint_credentials import EndpointCredentials, read_secret
from argosy.wire.client import Client as HttpClient
from argosy.wire.origin import Origin
from tests.support.aresjobs import template
from tests.support.operator_harness import Scene
from tests.support.servers import free_port

Json = dict[str, object]
NAMES = ["localhost"]
SECRET = "argosy-operator-tls"
OBSERVER_SECRET = "argosy-operator-observer-tls"
CLOCK = SystemClock()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check Secrets often, and use new keys at once."""
    monkeypatch.setattr(credentials, "CHECK_INTERVAL_SECONDS", 0.05)
    for module in (credentials, endpoint_credentials):
        monkeypatch.setattr(module, "TOKEN_KEY_DELAY", endpoint_credentials.TOKEN_KEY_DELAY * 0)


async def stored(scene: Scene, name: str = SECRET) -> EndpointCredentials | None:
    try:
        secret = await scene.client.get(Secret, name, scene.namespace)
    except NotFound:
        return None
    return read_secret(secret, issued=name == OBSERVER_SECRET)


async def is_led() -> bool:
    return True


async def is_not_led() -> bool:
    return False


class Replica:
    """The credentials of a replica, without the rest of the operator."""

    def __init__(self, scene: Scene, current: Credentials) -> None:
        own = SecretStore(scene.client, scene.namespace, SECRET)
        observers = SecretStore(scene.client, scene.namespace, OBSERVER_SECRET, issued=True)
        self.credentials = current
        issued = [IssuedSecret(observers, ["ares-observer"])]
        self.leading = CredentialMaintainer(current, own, NAMES, issued, CLOCK)

    @classmethod
    async def start(cls, scene: Scene) -> "Replica":
        store = SecretStore(scene.client, scene.namespace, SECRET)
        return cls(scene, await load_or_create(store, NAMES, CLOCK, is_not_led))


async def test_replicas_that_start_together_create_one_secret(scene: Scene) -> None:
    first, second = await Replica.start(scene), await Replica.start(scene)
    assert first.credentials.current == second.credentials.current == await stored(scene)


async def test_leader_restores_a_deleted_secret_with_the_same_keys(scene: Scene) -> None:
    leader, standby = await Replica.start(scene), await Replica.start(scene)
    before = leader.credentials.current
    await scene.client.delete(Secret, SECRET, scene.namespace)
    await standby.credentials.refresh()
    assert await stored(scene) is None, "a standby writes nothing"
    assert standby.credentials.current == before
    await leader.leading.maintain()
    await standby.credentials.refresh()
    assert before == await stored(scene) == standby.credentials.current


async def test_leader_restores_a_damaged_secret(scene: Scene) -> None:
    leader = await Replica.start(scene)
    before = leader.credentials.current
    await scene.client.patch(Secret, SECRET, {"data": {"ca.key": None, "token.key": ""}}, scene.namespace)
    await leader.leading.maintain()
    assert await stored(scene) == before


async def test_replica_that_starts_without_the_secret_waits_for_the_leader(scene: Scene) -> None:
    """Otherwise it would generate other keys, and running pods would be rejected."""
    leader = await Replica.start(scene)
    await scene.client.delete(Secret, SECRET, scene.namespace)
    looks = 0

    async def is_led_and_repaired() -> bool:
        nonlocal looks
        looks += 1
        await leader.leading.maintain()
        return True

    store = SecretStore(scene.client, scene.namespace, SECRET)
    started = await load_or_create(store, NAMES, CLOCK, is_led_and_repaired)
    assert (started.current, looks) == (leader.credentials.current, 1)


async def test_replica_stops_waiting_for_a_leader_that_does_not_restore_the_secret(scene: Scene) -> None:
    store = SecretStore(scene.client, scene.namespace, SECRET)
    started = await load_or_create(store, NAMES, CLOCK, is_led)
    assert started.current == await stored(scene)


async def test_secret_of_observers_is_updated_at_every_rotation(scene: Scene) -> None:
    leader = await Replica.start(scene)
    await leader.leading.maintain()
    store = SecretStore(scene.client, scene.namespace, OBSERVER_SECRET, issued=True)
    observing = await wait_for_credentials(store, CLOCK)
    secret = await scene.client.get(Secret, OBSERVER_SECRET, scene.namespace)
    assert set(secret.data) == {"tls.crt", "tls.key", "token.key"}, "no private key of the operator's"
    before = observing.current
    await rotate(SecretStore(scene.client, scene.namespace, SECRET), CLOCK, ca=True)
    await leader.leading.maintain()
    await observing.refresh()
    assert observing.verify(leader.credentials.token("uid"), "uid")
    assert observing.current.certificate != before.certificate


async def test_unchanged_secret_is_not_written(scene: Scene) -> None:
    leader = await Replica.start(scene)
    await leader.leading.maintain()
    names = (SECRET, OBSERVER_SECRET)
    before = [await scene.client.get(Secret, name, scene.namespace) for name in names]
    await leader.leading.maintain()
    assert before == [await scene.client.get(Secret, name, scene.namespace) for name in names]


async def test_second_rotation_is_refused_until_all_replicas_have_read_the_first(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Replica.start(scene)
    monkeypatch.setattr(credentials, "TOKEN_KEY_DELAY", timedelta(seconds=60))
    arguments = ["--kubeconfig", str(scene.server.kubeconfig), "-n", scene.namespace]
    done = await _command(arguments)
    assert (done.exit_code, "until the next rotation" in done.output) == (0, True), done.output
    refused = await _command(arguments)
    assert (refused.exit_code, "less than 60 s ago" in refused.output) == (1, True), refused.output


async def test_rotation_without_an_installation_fails_with_a_hint(scene: Scene) -> None:
    refused = await _command(["--kubeconfig", str(scene.server.kubeconfig), "-n", scene.namespace])
    assert refused.exit_code == 1
    assert f"Secret {scene.namespace}/argosy-operator-tls: missing or damaged" in refused.output


class PodCredentials(Struct, frozen=True):
    """The credentials that a pod was created with."""

    job: str
    uid: str
    authority: str
    token: str


class ServingProcesses:
    """Two replicas, one of them the leader, and an observer, with the requests that pods send them."""

    def __init__(self, scene: Scene, ports: Sequence[int]) -> None:
        self.scene = scene
        self.ports = ports

    async def new_pod(self, job: str) -> PodCredentials:
        """Create a job with a waiting pod, and return the credentials of that pod."""
        late = {"template": template(), "dependence": {"roleNames": ["first"]}}
        spec = {"frameworkType": "custom", "roleSpecs": {"first": {"template": template()}, "late": late}}
        body = {"metadata": {"name": job}, "spec": spec}
        stored = await self.scene.client.create(dynamic_kind(AresJob.resource), body, self.scene.namespace)

        async def is_created() -> bool:
            return f"{job}-late-0" in await self.scene.pods()

        await self.scene.until("the pod is made", is_created)
        pod = await self.scene.client.get(dynamic_kind(Pod.resource), f"{job}-late-0", self.scene.namespace)
        (helper,) = cast("list[Json]", cast("Json", pod.raw["spec"])["initContainers"])
        env = {
            str(variable["name"]): str(variable.get("value", ""))
            for variable in cast("list[Json]", helper["env"])
        }
        return PodCredentials(job, stored.metadata.uid, env["ARGOSY_CA"], env["ARGOSY_TOKEN"])

    async def statuses(self, pod: PodCredentials) -> list[int]:
        """Return the response status of each port to a pod; 0: the certificate is not trusted."""
        return [await self._status(port, pod) for port in self.ports]

    async def _status(self, port: int, pod: PodCredentials) -> int:
        client = HttpClient(Origin.from_url(f"https://localhost:{port}"))
        context = ssl.create_default_context(cadata=pod.authority)
        path, headers = (
            f"/cache/keys/{self.scene.namespace}.{pod.job}",
            {"Authorization": f"Bearer {pod.token}"},
        )
        try:
            return (await client.send("GET", path, headers, context=context, timeout=20)).status
        except OSError:
            return 0
        finally:
            await client.close()

    async def until_all(self, pod: PodCredentials, *want: int) -> None:
        async def answered() -> bool:
            return set(await self.statuses(pod)) <= set(want)

        await self.scene.until(f"all answer {want} to {pod.job}", answered)

    async def rotate(self, *flags: str) -> EndpointCredentials:
        """Rotate by the command, and wait until the Secret of observers is updated."""
        place = ["--kubeconfig", str(self.scene.server.kubeconfig), "-n", self.scene.namespace]
        done = await _command([*place, *flags])
        assert done.exit_code == 0, done.output
        new = await stored(self.scene)
        assert new is not None

        async def followed() -> bool:
            observers = await stored(self.scene, OBSERVER_SECRET)
            return observers is not None and observers.token_key == new.token_key

        await self.scene.until("the observers' Secret follows", followed)
        return new


@asynccontextmanager
async def running_processes(scene: Scene) -> AsyncIterator[ServingProcesses]:
    common: dict[str, object] = {"apis": (ares_api(AresSettings(observers=ObserverService("localhost.ns"))),)}
    ports = [free_port() for _ in range(3)]
    async with (
        scene.operator(**common, leader_elect=True, identity="a", endpoint=f"127.0.0.1:{ports[0]}"),
        scene.operator(**common, leader_elect=True, identity="b", endpoint=f"127.0.0.1:{ports[1]}"),
        scene.operator(
            **common,
            endpoint_only=True,
            credentials_secret=OBSERVER_SECRET,
            endpoint=f"127.0.0.1:{ports[2]}",
        ),
    ):
        yield ServingProcesses(scene, ports)


async def test_tokens_of_pods_are_accepted_after_one_rotation_and_rejected_after_two(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "UNKNOWN_JOB_GRACE_SECONDS", 0.05)
    monkeypatch.setattr(observer, "UNKNOWN_JOB_GRACE_SECONDS", 0.05)
    async with running_processes(scene) as processes:
        first = await processes.new_pod("first")
        await processes.until_all(first, 200)
        rotated = await processes.rotate()
        second = first

        async def uses_the_new_key() -> bool:
            nonlocal second
            second = await processes.new_pod(f"second-{secrets.token_hex(3)}")
            return second.token == rotated.token(second.uid)

        await scene.until("the leader has read the new key", uses_the_new_key)
        await processes.until_all(second, 200)
        assert await processes.statuses(first) == [200, 200, 200], "the previous key is accepted"
        await processes.rotate()
        await processes.until_all(first, 401)
        assert await processes.statuses(second) == [200, 200, 200]


async def test_running_pods_trust_the_endpoint_after_a_rotation_of_its_authority(scene: Scene) -> None:
    async with running_processes(scene) as processes:
        first = await processes.new_pod("first")
        await processes.until_all(first, 200)
        old = await stored(scene)
        rotated = await processes.rotate("--ca")
        assert old is not None
        only_new = PodCredentials(first.job, first.uid, rotated.signer.certificate, first.token)
        await processes.until_all(only_new, 200)
        assert await processes.statuses(first) == [200, 200, 200], "the old authority vouches for the new"
        await processes.rotate("--ca")
        await processes.until_all(first, 0)


async def test_deleted_secret_does_not_affect_pods(scene: Scene) -> None:
    async with running_processes(scene) as processes:
        first = await processes.new_pod("first")
        await processes.until_all(first, 200)
        before = await stored(scene)
        for name in (SECRET, OBSERVER_SECRET):
            await scene.client.delete(Secret, name, scene.namespace)

        async def back() -> bool:
            return await stored(scene) == before and await stored(scene, OBSERVER_SECRET) is not None

        await scene.until("the Secrets are back", back)
        await processes.until_all(first, 200)


async def _command(arguments: Sequence[str]) -> Result:
    """Run `argosy rotate-keys` in a thread, as it starts its own event loop."""
    return await asyncio.to_thread(CliRunner().invoke, rotate_keys, arguments)
