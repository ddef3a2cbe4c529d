"""Repository strings, image names and tags."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from argosy.checkpoint.image_names import (
    InvalidImageNameError,
    checkpoint_tag,
    complete_stamps,
    local_image,
    parse_image,
    parse_repository,
    parse_store,
    with_registry,
)

REPOSITORIES = {
    "host with a dot: registry": ("gcr.io/project/checkpoints", "gcr.io", "project/checkpoints"),
    "host with a port: registry": ("registry:5000/a", "registry:5000", "a"),
    "localhost with a port: registry": ("localhost:5000/x", "localhost:5000", "x"),
    "localhost without a port: registry": ("localhost/x", "localhost", "x"),
    "IPv6 address: registry": ("[::1]:5000/x", "[::1]:5000", "x"),
    "no host: docker.io and all is the repository": ("user/checkpoints", "docker.io", "user/checkpoints"),
    "single segment: docker.io, below library": ("checkpoints", "docker.io", "library/checkpoints"),
    "docker.io with a single segment: below library": ("docker.io/app", "docker.io", "library/app"),
    "other name of docker.io: docker.io": ("index.docker.io/u/app", "docker.io", "u/app"),
    "three segments and separators": ("eu.gcr.io/a/b_c/d.e--f", "eu.gcr.io", "a/b_c/d.e--f"),
}


@pytest.mark.parametrize("case", REPOSITORIES)
def test_repository_string(case: str) -> None:
    text, want_registry, want_path = REPOSITORIES[case]
    repository = parse_repository(text)
    assert (repository.registry, repository.path) == (want_registry, want_path)
    assert parse_repository(str(repository)) == repository


STORES = {
    "host with a port": ("oci://registry:5000/a/b", "registry:5000/a/b"),
    "host with a dot": ("oci://registry.example.com/a", "registry.example.com/a"),
    "Docker Hub by its name": ("oci://docker.io/team/a", "docker.io/team/a"),
    "no host: refused, not looked for at Docker Hub": ("oci://team/a", ""),
    "host alone": ("oci://registry.example.com", ""),
}


@pytest.mark.parametrize(("uri", "want"), STORES.values(), ids=STORES)
def test_repository_of_a_store_names_its_registry(uri: str, want: str) -> None:
    if want:
        assert str(parse_store(uri)) == want
        return
    with pytest.raises(InvalidImageNameError, match="must be oci://REGISTRY/REPOSITORY, where the registry"):
        parse_store(uri)


FAULTS = {
    "scheme": ("https://gcr.io/a", "must have no scheme"),
    "tag": ("gcr.io/a/b:v1", "must have no tag"),
    "tag without a registry": ("app:8080", "must have no tag"),
    "digest": (f"gcr.io/a@sha256:{'0' * 64}", "must have no digest"),
    "empty segment": ("gcr.io/a//b", "must have no empty segment"),
    "slash at the end": ("gcr.io/a/", "must have no empty segment"),
    "slash at the start": ("/a/b", "must have no empty segment"),
    "upper case": ("gcr.io/Team/a", "the repository must be lower case"),
    "registry alone": ("gcr.io", "must name a repository"),
    "localhost alone": ("localhost", "must name a repository"),
    "registry and a slash": ("gcr.io/", "must have no empty segment"),
    "nothing": ("", "must name a repository"),
    "space": ("gcr.io/a b", "invalid segment 'a b'"),
    "line break": ("gcr.io/a\nb", "invalid segment"),
    "leading dash": ("gcr.io/-a", "invalid segment '-a'"),
    "invalid host": ("-x.io/a", "invalid registry '-x.io'"),
    "login in the host": ("user:secret@gcr.io/a", "must have no digest"),
    "too long": ("gcr.io/" + "a" * 256, "at most 255 characters"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_invalid_repository_string(case: str) -> None:
    text, want_problem = FAULTS[case]
    with pytest.raises(InvalidImageNameError, match=want_problem):
        parse_repository(text)


WITH_REGISTRY = {
    "image without a host: the host is added": ("gcr.io", "a/b:main-1", "gcr.io/a/b:main-1"),
    "image with the host: the host is not added again": ("gcr.io", "gcr.io/a/b:main-1", "gcr.io/a/b:main-1"),
    "port: kept": ("localhost:5000", "x:main-1", "localhost:5000/x:main-1"),
    "URL with scheme and slash: its host": ("https://gcr.io/", "a:main-1", "gcr.io/a:main-1"),
    "docker.io with a single segment: below library": ("docker.io", "a:1", "docker.io/library/a:1"),
    "no tag: latest": ("gcr.io", "a/b", "gcr.io/a/b:latest"),
    "digest: kept": ("gcr.io", f"a@sha256:{'0' * 64}", f"gcr.io/a@sha256:{'0' * 64}"),
}


@pytest.mark.parametrize("case", WITH_REGISTRY)
def test_host_is_put_before_an_image_once(case: str) -> None:
    url, image, want = WITH_REGISTRY[case]
    assert str(with_registry(url, image)) == want
    assert str(with_registry(url, want)) == want


@pytest.mark.parametrize("image", ["quay.io/a/b:1", "localhost/b:1", "a/b:", "a/b:x y", "a@sha256:12", ""])
def test_image_of_another_registry_or_of_none_is_invalid(image: str) -> None:
    with pytest.raises(InvalidImageNameError):
        with_registry("gcr.io", image)


def test_local_image_has_the_time_in_utc() -> None:
    at = datetime(2026, 3, 1, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))
    image = local_image("job-replica-0-abc", "main", at)
    assert str(image) == "localhost/checkpoint-job-replica-0-abc-main:20260228-230203"


def test_long_names_of_local_images_are_cut_and_stay_different() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    first, second = (local_image("p" * 250 + end, "main", at) for end in ("-a", "-b"))
    assert first != second
    assert parse_image(str(first)) == first


STAMPS = {
    "all containers have it: newest first": (["a-1", "b-1", "a-2", "b-2"], [2, 1]),
    "one container lacks the newest: left out": (["a-1", "b-1", "a-2"], [1]),
    "foreign tags: ignored": (["latest", "a-", "a-1x", "b-1", "c-1", "a-1", "a-\u0661"], [1]),
    "no tags: none": ([], []),
}


@pytest.mark.parametrize("case", STAMPS)
def test_stamps_of_complete_checkpoints(case: str) -> None:
    tags, want = STAMPS[case]
    assert complete_stamps(tags, ("a", "b")) == want


def test_tag_of_a_container_with_dashes_is_found_again() -> None:
    assert complete_stamps([checkpoint_tag("side-car", 17)], ["side-car"]) == [17]
    assert complete_stamps([checkpoint_tag("side-car", 17)], ["side"]) == []
