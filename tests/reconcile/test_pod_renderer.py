"""Tests for rendering the pods of a job: their common parts are rendered once per reconcile."""

from collections.abc import Iterator
from typing import ClassVar, cast

import pytest
from msgspec import Struct

from argosy.frameworks.base import Framework, Injection
from argosy.reconcile.pod_renderer import JobPodRenderer, PodRenderer, UnrenderableError
from argosy.reconcile.render import Json
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.model import Dependency, Problem, Role, Rules, Workload
from argosy.workload.plan import CreatePod
from tests.support.builders import role, workload


class RankFramework:
    """A framework that injects the rank into every pod, and a file into the first pod of a role."""

    name: ClassVar[str] = "rank"
    Options: ClassVar[type[Struct]] = Struct

    def defaults(self, workload: Workload) -> Workload:
        return workload

    def check(self, workload: Workload) -> Iterator[Problem]:
        yield from ()

    def rules(self, workload: Workload) -> Rules:
        return Rules()

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        files = {"/etc/first": "yes"} if index == 0 else {}
        return Injection(env={"RANK": str(index)}, files=files, depends_on=(Dependency("worker"),))


class Rendering:
    def __init__(self, framework: Framework | None) -> None:
        self.rendered = 0
        self.maker = PodRenderer(RenderContext(Helper("helper"), "https://x"), self._token)
        self.framework = framework

    def _token(self, uid: str) -> str:
        self.rendered += 1
        return uid

    def of(self, *roles: Role) -> JobPodRenderer:
        inject = self.framework.inject if self.framework else lambda *place: None
        return self.maker.for_job(workload(*roles), inject)


def body(pods: JobPodRenderer, name: str, index: int) -> Json:
    return pods.render(CreatePod(name, index, 1, 0), f"mnist-{name}-{index}")


def test_a_role_is_rendered_once_however_many_pods_it_has() -> None:
    rendering = Rendering(RankFramework())
    pods = rendering.of(role("worker", 9), role("other", 9))
    for index in range(1, 9):
        body(pods, "worker", index)
        body(pods, "other", index)
    assert rendering.rendered == 2


def test_each_pod_has_its_own_index_and_rank() -> None:
    pods = Rendering(RankFramework()).of(role("worker", 3))
    for index in (1, 2):
        pod = body(pods, "worker", index)
        metadata, spec = cast("Json", pod["metadata"]), cast("Json", pod["spec"])
        assert (metadata["name"], spec["hostname"]) == (f"mnist-worker-{index}", f"mnist-worker-{index}")
        assert cast("dict[str, str]", metadata["labels"])["argosy.dev/index"] == str(index)
        container = cast("list[dict[str, list[dict[str, str]]]]", spec["containers"])[0]
        env = {variable["name"]: variable["value"] for variable in container["env"]}
        assert (env["RANK"], env["ARGOSY_INDEX"]) == (str(index), str(index))


def test_a_pod_with_another_injection_is_rendered_separately() -> None:
    pods = Rendering(RankFramework()).of(role("worker", 3))
    first, second = body(pods, "worker", 0), body(pods, "worker", 1)
    assert "annotations" in cast("Json", first["metadata"])
    assert "annotations" not in cast("Json", second["metadata"])
    assert "volumes" not in cast("Json", second["spec"])
    assert body(pods, "worker", 0) == first


def test_a_framework_that_is_not_installed_is_reported() -> None:
    with pytest.raises(UnrenderableError, match="not installed"):
        body(Rendering(None).of(role("worker", 1)), "worker", 0)
