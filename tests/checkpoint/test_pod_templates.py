"""Templates of checkpointed pods."""

import pytest

from argosy.checkpoint.pod_templates import (
    LAST_APPLIED,
    base_images,
    pod_template,
    template_containers,
    template_metadata,
)
from argosy.kinds.labels import ORIGINAL_IMAGES


def test_template_lacks_what_the_cluster_has_added() -> None:
    mount = {"name": "kube-api-access-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    data = {"name": "data", "mountPath": "/data"}
    metadata: dict[str, object] = {
        "name": "train-0",
        "uid": "1",
        "labels": {"app": "train"},
        "annotations": {LAST_APPLIED: "{}", "kept": "yes"},
    }
    spec: dict[str, object] = {
        "nodeName": "node-1",
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "a:1", "volumeMounts": [mount, data]}, {"name": "b"}],
        "volumes": [{"name": "kube-api-access-x", "projected": {}}, {"name": "data", "emptyDir": {}}],
    }
    assert pod_template(metadata, spec) == {
        "metadata": {"labels": {"app": "train"}, "annotations": {"kept": "yes"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "a:1", "volumeMounts": [data]}, {"name": "b"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }


SPEC = {
    "containers": [{"name": "main", "image": "team/train@sha256:1"}, {"name": "logs", "image": "logs:v1"}]
}
AS_RUN = {"main": "team/train@sha256:1", "logs": "logs:v1"}
BASE_IMAGES: dict[str, tuple[dict[str, object], dict[str, str]]] = {
    "pod that was not restored: the images that it names": ({"spec": SPEC}, AS_RUN),
    "restored container: the image of its program": (
        {"metadata": {"annotations": {ORIGINAL_IMAGES: '{"main":"train:v1","gone":"x"}'}}, "spec": SPEC},
        {"main": "train:v1", "logs": "logs:v1"},
    ),
    "annotation that is no JSON: ignored": (
        {"metadata": {"annotations": {ORIGINAL_IMAGES: "{"}}, "spec": SPEC},
        AS_RUN,
    ),
    "annotation with other types: ignored": (
        {"metadata": {"annotations": {ORIGINAL_IMAGES: '{"main":1}'}}, "spec": SPEC},
        AS_RUN,
    ),
    "nothing recorded: none": ({}, {}),
}


@pytest.mark.parametrize(("template", "want"), BASE_IMAGES.values(), ids=BASE_IMAGES.keys())
def test_images_of_programs(template: dict[str, object], want: dict[str, str]) -> None:
    assert base_images(template) == want


GARBAGE: dict[str, dict[str, object]] = {
    "other types": {"metadata": 7, "spec": [1]},
    "other types below": {"metadata": {"labels": [1]}, "spec": {"containers": {"main": 1}}},
    "other types in lists": {"spec": {"containers": [1, None, "main"]}},
}


@pytest.mark.parametrize("template", GARBAGE.values(), ids=GARBAGE.keys())
def test_template_of_another_form_has_nothing(template: dict[str, object]) -> None:
    assert (template_containers(template), template_metadata(template, "labels")) == ({}, {})
