"""Tests the files of host lists: their content, and what identifies them."""

from msgspec.structs import replace

from argosy.workload.host_files import HostFiles, LiveFile, config_map_name, render_host_files
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Workload
from argosy.workload.record import Record, RoleRecord
from tests.support.scale_simulator import elastic_job
from tests.support.workloads import workload


def render(job: Workload, *listed: int) -> HostFiles:
    files = render_host_files(job, Record(roles={"worker": RoleRecord(listed=IndexSet.of(listed))}))
    assert files is not None
    return files


def with_slots(job: Workload, slots: int) -> Workload:
    return replace(job, roles={**job.roles, "worker": replace(job.roles["worker"], slots=slots)})


def test_each_form_has_one_line_for_each_listed_host_by_index() -> None:
    assert render(elastic_job(), 10, 0, 2).data == {
        "hostfile": "job-worker-0:1\njob-worker-2:1\njob-worker-10:1\n",
        "deepspeed-hostfile": "job-worker-0 slots=1\njob-worker-2 slots=1\njob-worker-10 slots=1\n",
        "discover_hosts.sh": "#!/bin/sh\n",
        "kubexec.sh": "#!/bin/sh\nexit 1\n",
    }


def test_slots_are_those_of_the_role() -> None:
    files = render(with_slots(elastic_job(), 8), 0)
    assert (files.data["hostfile"], files.data["deepspeed-hostfile"]) == (
        "job-worker-0:8\n",
        "job-worker-0 slots=8\n",
    )


def test_live_copies_have_path_mode_and_the_content_of_the_config_map() -> None:
    assert render(elastic_job(), 1).live == (
        LiveFile("/etc/edl/hostfile", 0o600, "job-worker-1:1\n"),
        LiveFile("/etc/edl/discover_hosts.sh", 0o755, "#!/bin/sh\n"),
        LiveFile("/job/hostfile", 0o600, "job-worker-1 slots=1\n"),
    )


def test_an_empty_list_and_a_job_without_one_are_not_rendered() -> None:
    assert render_host_files(elastic_job(), Record()) is None
    assert render_host_files(workload(), Record()) is None
    assert config_map_name(workload()) == ""


def test_the_digest_changes_with_hosts_and_slots_only_where_live_copies_have_them() -> None:
    job, before = elastic_job(), render(elastic_job(), 0, 1).digest
    assert render(job, 0, 1).digest == before
    assert render(job, 0).digest != before
    assert render(with_slots(job, 2), 0, 1).digest != before
    rule = job.rules.host_list
    assert rule is not None
    *live, kubexec = rule.files
    other_text = replace(rule, files=(*live, replace(kubexec, text="other")))
    assert render(replace(job, rules=replace(job.rules, host_list=other_text)), 0, 1).digest == before


def test_without_live_copies_there_is_no_digest() -> None:
    job = elastic_job()
    rule = job.rules.host_list
    assert rule is not None
    in_config_map = replace(rule, files=tuple(replace(file, paths=()) for file in rule.files))
    files = render(replace(job, rules=replace(job.rules, host_list=in_config_map)), 0)
    assert (files.live, files.digest) == ((), "")
    assert files.data["hostfile"] == "job-worker-0:1\n"


def test_the_name_of_the_config_map_follows_its_format() -> None:
    assert config_map_name(elastic_job()) == "job-config"
