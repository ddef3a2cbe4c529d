"""The parts of the fuzzer: reproducible sequences, shrinking, and the summary."""

from collections.abc import Sequence

from tests.support.differential import Step, get, post
from tools.fuzzer import sequences
from tools.fuzzer.known_differences import without_known_differences
from tools.fuzzer.report import Disagreement, Summary
from tools.fuzzer.shrink import shrink


def test_sequence_depends_only_on_seed_and_number() -> None:
    assert [sequences.generate(1, number) for number in range(50)] == [
        sequences.generate(1, number) for number in range(50)
    ]
    assert sequences.generate(1, 7) != sequences.generate(2, 7)


def test_every_family_and_kind_is_generated() -> None:
    steps = [step for number in range(2000) for step in sequences.generate(3, number).steps]
    assert {step.method for step in steps} >= {"GET", "POST", "PUT", "PATCH", "DELETE"}
    assert {step.type for step in steps if step.method == "PATCH"} >= {
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    }
    paths = " ".join(step.path for step in steps)
    for words in (
        *("configmaps", "secrets", "services", "serviceaccounts", "pods", "jobs", "leases", "widgets"),
        *(
            "customresourcedefinitions",
            "namespaces/$ns-a",
            "/status",
            "/scale",
            "watch=1",
            "continue=",
            "force=",
        ),
        *(
            "force=",
            "dryRun=All",
            "fieldValidation=Strict",
            "labelSelector=",
            "fieldSelector=",
            "resourceVersion=",
        ),
    ):
        assert words in paths, words


def test_shrink_keeps_only_the_steps_and_fields_that_disagree() -> None:
    body = {"kind": "Pod", "spec": {"wrong": 1, "right": 2}, "more": [1, 2]}
    steps = [get("/a"), post("/b", {"x": 1}), get("/c"), post("/d", body), get("/e")]

    def disagrees(candidate: Sequence[Step]) -> bool:
        bodies = [step.body for step in candidate if step.path == "/d"]
        return any(isinstance(body, dict) and "wrong" in body.get("spec", {}) for body in bodies)

    (left,) = shrink(steps, disagrees)
    assert left.path == "/d"
    assert left.body == {"kind": "Pod", "spec": {"wrong": 1}}


def test_too_many_sequences_that_agree_only_on_retry_are_a_problem() -> None:
    summary = Summary()
    for number in range(1000):
        summary.add(5, None, agreed_on_retry=number < 5)
    assert summary.problem == ""
    summary.add(5, None, agreed_on_retry=True)
    assert "agree only when sent again" in summary.problem


def test_same_kind_of_disagreement_is_reported_once() -> None:
    summary = Summary()

    def disagreement(code: int) -> Disagreement:
        sequence = sequences.Sequence(1, 1, (get("/api/v1/namespaces/$ns/pods/a"),))
        return Disagreement(sequence, [{"code": code, "body": {}}], [{"code": 404, "body": {}}])

    assert summary.add(1, disagreement(200), agreed_on_retry=False)
    assert not summary.add(1, disagreement(200), agreed_on_retry=False)
    assert summary.problem == "2 of 2 sequences disagree"
    assert list(summary.disagreed) == ["GET pods: code | N / N"]


def test_bookmarks_are_compared_by_kind_and_version_only() -> None:
    empty: dict[str, object] = {"spec": {"containers": None}, "status": {}}
    bookmark = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}}
    events = [{"type": "BOOKMARK", "object": {**bookmark, **empty}}]
    assert without_known_differences(events) == [{"type": "BOOKMARK", "object": bookmark}]
