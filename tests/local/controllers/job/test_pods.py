"""Tests for the pods of a Job."""

import msgspec

from argosy.local.controllers.api_types import Job
from argosy.local.controllers.job.pods import build_pod

JOB = msgspec.convert(
    {
        "metadata": {"name": "j", "namespace": "ns", "uid": "u1"},
        "spec": {
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main"}]}}
        },
    },
    Job,
)


def test_a_pod_has_labels_owner_and_finalizer_of_its_job() -> None:
    assert build_pod(JOB, None) == {
        "metadata": {
            "generateName": "j-",
            "namespace": "ns",
            "labels": {
                "a": "b",
                "controller-uid": "u1",
                "batch.kubernetes.io/controller-uid": "u1",
                "job-name": "j",
                "batch.kubernetes.io/job-name": "j",
            },
            "annotations": {},
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": "j",
                    "uid": "u1",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {"containers": [{"name": "main"}]},
    }


def test_a_pod_of_an_indexed_job_has_its_index() -> None:
    body = msgspec.convert(build_pod(JOB, 4), dict[str, dict[str, object]])
    key = "batch.kubernetes.io/job-completion-index"
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{key}']"}}
    assert body["metadata"]["generateName"] == "j-4-"
    assert body["metadata"]["annotations"] == {key: "4"}
    assert body["spec"]["hostname"] == "j-4"
    assert body["spec"]["containers"] == [
        {"name": "main", "env": [{"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]}
    ]
    assert JOB.spec.template["spec"] == {"containers": [{"name": "main"}]}, "the template is untouched"
