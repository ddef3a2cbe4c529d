"""Tests for real pods without an API server: the processes, files and statuses of a shim."""

import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from argosy.local.node import capabilities, cgroups, pod_state, shim_socket
from argosy.local.node.logs import log_path, read_lines
from argosy.local.node.runspec_builder import hidden_folders, interpreter_folders
from argosy.local.node.shim_manager import has_shim
from argosy.local.procfs import is_alive
from tests.support.runspecs import (
    Stage,
    container_config,
    finished,
    probe_config,
    run_spec,
    stage,
)
from tests.support.waiting import wait_for

pytestmark = pytest.mark.root


def output(folder: Path, container: str, run: int = 0) -> str:
    return b"".join(line.format(False) for line in read_lines(log_path(folder, container, run))).decode()


def ask(folder: Path, request: dict[str, object]) -> dict[str, object]:
    with shim_socket.connect(folder) as client:
        client.sendall(json.dumps(request).encode() + b"\n")
        answer: dict[str, object] = json.loads(client.makefile().readline())
        return answer


def entry(folder: Path, container: str) -> pod_state.ContainerState:
    """What is reported of a container by now."""
    state = pod_state.read_state(folder)
    return (state["containers"] if state else {}).get(container) or pod_state.waiting_state(container, "")


def test_two_containers_run_in_parallel_and_their_results_are_reported(pods: Stage) -> None:
    folder = pods.run(
        run_spec(container_config("a", "echo one; exit 3"), container_config("b", "echo two >&2; hostname"))
    )
    state = finished(folder)
    ends = {name: entry["ended"] for name, entry in state["containers"].items()}
    assert ends["a"] is not None
    assert (ends["a"]["exit_code"], ends["a"]["reason"]) == (3, "Error")
    assert ends["b"] is not None
    assert (ends["b"]["exit_code"], ends["b"]["reason"]) == (0, "Completed")
    assert output(folder, "a") == "one\n"
    assert sorted(output(folder, "b").splitlines()) == ["pod", "two"]  # two streams have no common order
    wait_for(lambda: not has_shim(folder))


def test_init_containers_run_in_order_before_the_main_one(pods: Stage, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    mount = [{"source": str(shared), "target": "/data", "read_only": False}]
    folder = pods.run(
        run_spec(
            container_config("first", "echo 1 >> /data/order", kind="init", mounts=mount),
            container_config("side", "echo side >> /data/order; sleep 100", kind="sidecar", mounts=mount),
            container_config(
                "main", "until grep -q side /data/order; do :; done; echo 3 >> /data/order", mounts=mount
            ),
        )
    )
    state = finished(folder)
    assert (shared / "order").read_text().split() == ["1", "side", "3"]
    side = state["containers"]["side"]["ended"]
    assert side is not None
    assert side["exit_code"] == 143, "a sidecar is stopped when the main container has ended"


def test_a_failed_init_container_ends_a_pod_that_never_restarts(pods: Stage) -> None:
    folder = pods.run(
        run_spec(container_config("first", "exit 1", kind="init"), container_config("main", "echo never"))
    )
    state = finished(folder)
    assert state["containers"]["main"]["ended"] is None
    assert not log_path(folder, "main", 0).exists()


def test_a_crashing_container_is_restarted_with_backoff(pods: Stage, tmp_path: Path) -> None:
    """The first restart is at once, later ones have a backoff, by the reports: wall time depends on load."""
    shared = tmp_path / "shared"
    shared.mkdir()
    config = container_config(
        "main",
        "until test -e /data/go; do sleep 0.01; done; exit 1",
        mounts=[{"source": str(shared), "target": "/data", "read_only": False}],
    )
    folder = pods.run(run_spec(config, restart_policy="Always"))
    wait_for(lambda: entry(folder, "main")["running"])
    pauses: list[tuple[int, str]] = []
    with shim_socket.connect(folder) as client, client.makefile() as stream:
        client.sendall(b'{"op": "watch"}\n')
        for line in stream:
            (shared / "go").touch()
            container = json.loads(line).get("report", {}).get("containers", {}).get("main")
            if container and container["waiting"]:
                pauses.append(
                    (container["restarts"], container["waiting_message"].partition(" restarting")[0])
                )
            if container and container["restarts"] == 3:
                break
    assert pauses == [(1, "back-off 0.05s"), (2, "back-off 0.1s")]
    last = entry(folder, "main")["last"]
    assert last is not None
    assert last["exit_code"] == 1


def test_with_on_failure_only_failed_containers_restart(pods: Stage, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    config = container_config(
        "main",
        "test -e /data/once && exit 0; touch /data/once; exit 7",
        mounts=[{"source": str(shared), "target": "/data", "read_only": False}],
    )
    state = finished(pods.run(run_spec(config, restart_policy="OnFailure")))
    assert state["containers"]["main"]["restarts"] == 1


def test_a_missing_command_is_a_start_error(pods: Stage) -> None:
    state = finished(pods.run(run_spec(container_config("main", "", argv=["no-such-program"]))))
    ended = state["containers"]["main"]["ended"]
    assert ended is not None
    assert (ended["exit_code"], ended["reason"]) == (128, "StartError")
    assert ended["message"] == 'exec: "no-such-program": executable file not found in $PATH'


def test_a_pod_sees_neither_homes_nor_the_host_and_its_writes_stay_inside(pods: Stage) -> None:
    secret = pods.folder / "token"
    secret.write_text("admin")
    marker = Path("/etc/argosy-test-marker")
    script = (
        f"ls -A /home /root; cat {secret} 2>&1; echo mine > {marker}; cat {marker}; "
        "grep -E 'CapEff|NoNewPrivs' /proc/self/status; echo x > /proc/sys/kernel/hostname || echo denied"
    )
    folder = pods.run(run_spec(container_config("main", script), hidden=["/home", "/root", str(pods.folder)]))
    finished(folder)
    text = output(folder, "main")
    assert "admin" not in text
    assert "mine" in text
    assert not marker.exists()
    assert "CapEff:\t00000000a00405fb" in text
    assert "NoNewPrivs:\t1" in text
    assert "denied" in text


def test_a_container_can_neither_create_device_files_nor_send_raw_packets(pods: Stage) -> None:
    raw = "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"
    script = f'mknod /x c 1 3 || echo no device; python3 -c "{raw}" 2>/dev/null || echo no packets'
    folder = pods.run(run_spec(container_config("main", script)))
    finished(folder)
    assert output(folder, "main").splitlines()[-2:] == ["no device", "no packets"]


def test_device_files_created_in_a_container_open_only_if_it_is_privileged(
    pods: Stage, tmp_path: Path
) -> None:
    """MKNOD is granted on request, and of no use: only the device files that were given to it open."""
    script = "for d in / /tmp /dev /run /dev/shm /v; do mknod $d/x c 1 3 && cat $d/x && echo opened $d; done"
    mounts = [{"source": str(tmp_path), "target": "/v", "read_only": False}]
    granted = container_config(
        "granted",
        f"{script}; cat /dev/null && echo given",
        mounts=mounts,
        capabilities=capabilities.effective(["MKNOD"], ()),
    )
    privileged = container_config("privileged", script, privileged=True)
    folder = pods.run(run_spec(granted, privileged))
    finished(folder)
    assert [line for line in output(folder, "granted").splitlines() if "cat" not in line] == ["given"]
    assert "opened /dev\n" in output(folder, "privileged")


def test_stopping_runs_the_hook_sends_the_signal_and_kills_after_the_grace_period(pods: Stage) -> None:
    polite = container_config(
        "polite",
        "trap 'echo term; exit 9' TERM; echo up; while :; do sleep 0.05; done",
        pre_stop={"exec": ["/bin/sh", "-c", "echo hook > /proc/1/root/dev/null; touch /tmp/hooked"]},
    )
    deaf = container_config("deaf", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    folder = pods.run(run_spec(polite, deaf))
    wait_for(lambda: output(folder, "polite") and output(folder, "deaf"))
    assert ask(folder, {"op": "stop", "grace": 0.5}) == {"ok": True}
    state = finished(folder)
    ends = {name: entry["ended"] for name, entry in state["containers"].items()}
    assert ends["polite"] is not None
    assert ends["polite"]["exit_code"] == 9
    assert ends["deaf"] is not None
    assert ends["deaf"]["exit_code"] == 137


def test_processes_in_the_background_end_with_their_container(pods: Stage) -> None:
    folder = pods.run(
        run_spec(
            container_config("main", "setsid sleep 1000 & echo started; exit 0"),
            container_config("other", "trap 'exit 0' TERM; while :; do sleep 0.05; done"),
        )
    )

    wait_for(lambda: entry(folder, "main")["ended"])
    wait_for(lambda: "sleep 1000" not in commands(folder))
    assert has_shim(folder)


ENDS: dict[str, dict[str, object]] = {
    "own PID namespace: process ends": {"share_pids": False},
    "shared PID namespace and cgroup: process ends": {
        "share_pids": True,
        "cgroup": f"argosy/test-{os.getpid()}",
    },
}


@pytest.mark.parametrize("case", ENDS)
def test_a_process_that_left_the_mount_namespace_ends_with_its_container(case: str, pods: Stage) -> None:
    if "cgroup" in ENDS[case] and cgroups.find_hierarchy() is None:
        pytest.skip("no cgroup that may be written")
    script = "unshare -m setsid sleep 1001 & until ps ax | grep -q '[s]leep 1001'; do :; done; exit 0"
    folder = pods.run(
        run_spec(
            container_config("main", script, privileged=True),
            container_config("other", "trap 'exit 0' TERM; while :; do sleep 0.05; done"),
            **ENDS[case],
        )
    )
    wait_for(lambda: entry(folder, "main")["ended"])
    wait_for(lambda: "sleep 1001" not in commands(folder))
    assert has_shim(folder)
    assert entry(folder, "other")["running"]
    ask(folder, {"op": "stop", "grace": 0})
    finished(folder)
    if hierarchy := cgroups.find_hierarchy():
        cgroups.remove(hierarchy, f"argosy/test-{os.getpid()}")


@pytest.mark.parametrize("shared", [False, True])
def test_with_sys_ptrace_a_container_reaches_nothing_of_the_host_through_other_processes(
    shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by the root or the working folder of any process that it sees, nor by the environment."""
    monkeypatch.setenv("SECRET", "of the user")
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    script = (
        f"cat /proc/[0-9]*/root{secret} /proc/1/cwd/etc/shadow /proc/1/fd/*; grep -a SECRET /proc/1/environ; "
        "ls -A /proc/1/root; echo over; ps ax -o comm="
    )
    config = container_config("main", script, capabilities=capabilities.effective(["SYS_PTRACE"], ()))
    other = container_config("other", "", argv=["sleep", "1000"], kind="sidecar")
    runspec = run_spec(other, config, hidden=["/home", "/root", str(tmp_path)], share_pids=shared)
    with stage(tmp_path) as pods:
        folder = pods.run(runspec)
        finished(folder)
    text = "\n".join(line for line in output(folder, "main").splitlines() if not line.startswith("cat: "))
    assert text.partition("over")[0].strip() == ""
    assert "pause" in text.split()
    assert ("sleep" in text.split()) == shared, "processes of other containers are seen only when shared"


def test_a_command_run_by_exec_is_within_the_containers_limits(pods: Stage) -> None:
    memory = 256 << 20
    by_group = container_config("main", "sleep 1000", memory=memory)
    group = f"argosy/test-{os.getpid()}-exec"
    hierarchy = cgroups.find_hierarchy()
    if hierarchy:
        folder = pods.run(run_spec(by_group, cgroup=group))
        wait_for(lambda: entry(folder, "main")["running"])
        assert f"{group}/main" in run_exec(folder, "cat /proc/self/cgroup")
        ask(folder, {"op": "stop", "grace": 0})
        finished(folder)
        cgroups.remove(hierarchy, group)
    folder = pods.run(run_spec(by_group))
    wait_for(lambda: entry(folder, "main")["running"])
    assert run_exec(folder, "ulimit -d") == f"{memory // 1024}\n"


def run_exec(folder: Path, script: str) -> str:
    """What a command in the container `main` writes."""
    reader, writer = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    request = {"op": "exec", "container": "main", "argv": ["/bin/sh", "-c", script], "tty": False}
    with shim_socket.connect(folder) as client:
        socket.send_fds(client, [json.dumps(request).encode() + b"\n"], [null, writer, writer])
        for descriptor in (writer, null):
            os.close(descriptor)
        with os.fdopen(reader) as stream:
            return stream.read()


def commands(folder: Path) -> str:
    """Command lines of the processes of a pod, as the machine sees them."""
    state = pod_state.read_state(folder)
    assert state is not None
    parents: dict[int, int] = {}
    lines: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                lines[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])

    def below(pid: int) -> bool:
        return pid == state["pid"] or (pid in parents and below(parents[pid]))

    return "\n".join(line for pid, line in lines.items() if below(pid))


def test_probes_decide_readiness_and_a_failing_liveness_probe_restarts(pods: Stage) -> None:
    ready = container_config(
        "ready",
        "sleep 0.2; touch /tmp/ok; while :; do sleep 0.05; done",
        readiness=probe_config({"exec": ["test", "-e", "/tmp/ok"]}),
    )
    sick = container_config(
        "sick",
        "while :; do sleep 0.05; done",
        liveness=probe_config({"exec": ["false"]}, failures=2, grace=0.0),
    )
    folder = pods.run(run_spec(ready, sick, restart_policy="Always"))

    wait_for(lambda: entry(folder, "ready")["ready"])
    wait_for(lambda: entry(folder, "sick")["restarts"] >= 1)
    assert entry(folder, "ready")["restarts"] == 0


def test_the_termination_message_is_read_from_its_file(pods: Stage) -> None:
    state = finished(
        pods.run(run_spec(container_config("main", "echo because > /dev/termination-log; exit 1")))
    )
    ended = state["containers"]["main"]["ended"]
    assert ended is not None
    assert ended["message"] == "because\n"


def test_a_pod_survives_the_death_of_its_zygote_and_is_reached_again(pods: Stage) -> None:
    folder = pods.run(
        run_spec(container_config("main", "trap 'exit 4' TERM; echo up; while :; do sleep 0.05; done"))
    )
    wait_for(lambda: output(folder, "main"))
    os.kill(pods.process.pid, signal.SIGKILL)
    pods.process.wait()
    assert has_shim(folder)
    assert ask(folder, {"op": "stop", "grace": 5})["ok"]
    ended = finished(folder)["containers"]["main"]["ended"]
    assert ended is not None
    assert ended["exit_code"] == 4


def test_there_is_never_a_second_shim_for_a_pod(pods: Stage) -> None:
    folder = pods.run(run_spec(container_config("main", "sleep 100")))
    with shim_socket.connect(pods.folder, "zygote.sock") as client:
        client.sendall(f"{folder}\n".encode())
        assert "error" in json.loads(client.makefile().readline())


def test_the_end_of_the_shim_is_the_end_of_every_process_in_the_pod(pods: Stage) -> None:
    folder = pods.run(run_spec(container_config("main", "setsid sleep 1000 & sleep 1000")))
    wait_for(lambda: entry(folder, "main")["running"])
    state = pod_state.read_state(folder)
    assert state is not None
    os.kill(state["pid"], signal.SIGKILL)
    wait_for(lambda: not is_alive(state["pid"], state["start_time"]))
    wait_for(lambda: not has_shim(folder))


def test_users_groups_and_capabilities_are_applied(pods: Stage) -> None:
    config = container_config(
        "main",
        "id -u; id -g; id -G; grep CapEff /proc/self/status; touch /x 2>&1 || echo refused",
        uid=1234,
        gid=2345,
        groups=[2345, 77],
        read_only_root=True,
    )
    folder = pods.run(run_spec(config))
    finished(folder)
    assert output(folder, "main").split("\n")[:4] == ["1234", "2345", "2345 77", "CapEff:\t0000000000000000"]
    assert "refused" in output(folder, "main")


def test_a_terminal_is_logged_and_has_a_name(pods: Stage) -> None:
    folder = pods.run(run_spec(container_config("main", "tty; stty -echo; echo done", tty=True)))
    finished(folder)
    assert output(folder, "main").replace("\r", "").split("\n")[:2] == ["/dev/pts/0", "done"]


def test_a_container_above_its_memory_limit_is_reported_as_oom_killed(pods: Stage) -> None:
    if cgroups.find_hierarchy() is None:
        pytest.skip("no cgroup that may be written")
    config = container_config(
        "main", "exec python3 -c 'b = bytearray(400 << 20); print(len(b))'", memory=64 << 20, cpu=500
    )
    group = f"argosy/test-{os.getpid()}"
    folder = pods.run(run_spec(config, cgroup=group))
    ended = finished(folder)["containers"]["main"]["ended"]
    hierarchy = cgroups.find_hierarchy()
    assert hierarchy is not None
    cgroups.remove(hierarchy, group)
    assert ended is not None
    assert (ended["exit_code"], ended["reason"]) == (137, "OOMKilled")
    assert not any(path.exists() for path in hierarchy.paths(group))


def test_an_image_folder_is_the_root_and_is_not_modified(pods: Stage, tmp_path: Path) -> None:
    image = tmp_path / "image"
    for name in ("bin", "lib", "lib64", "usr", "etc"):
        (image / name).mkdir(parents=True)
    (image / "hello").write_text("from the image\n")
    mounts = [
        {"source": f"/{name}", "target": f"/{name}", "read_only": True}
        for name in ("bin", "lib", "lib64", "usr")
    ]
    config = container_config("main", "cat /hello; ls /etc; echo new > /new", root=str(image), mounts=mounts)
    folder = pods.run(run_spec(config))
    finished(folder)
    assert output(folder, "main").split("\n") == ["from the image", "hostname", "hosts", "resolv.conf", ""]
    assert not (image / "new").exists()


def test_volumes_are_shared_by_containers_and_medium_memory_is_tmpfs(pods: Stage) -> None:
    runspec = run_spec(
        container_config("writer", "echo $$ > /v/x; stat -f -c %T /v; sleep 100", kind="sidecar"),
        container_config("reader", "until test -s /v/x; do :; done; echo read; touch /ro/x || echo no"),
    )
    volume = pods.folder / runspec["uid"] / "volumes" / "v"
    volume.mkdir(parents=True)
    runspec["memory_volumes"] = {str(volume): 1 << 20}
    for config in runspec["containers"]:
        config["mounts"] = [
            {"source": str(volume), "target": "/v", "read_only": False},
            {"source": str(volume), "target": "/ro", "read_only": True},
        ]
    folder = pods.run(runspec)
    finished(folder)
    assert output(folder, "writer") == "tmpfs\n"
    assert "read\n" in output(folder, "reader")
    assert "no\n" in output(folder, "reader")


def test_standard_input_is_attached_through_the_socket(pods: Stage) -> None:
    folder = pods.run(run_spec(container_config("main", "cat", stdin=True, stdin_once=True)))
    wait_for(lambda: entry(folder, "main")["running"])
    with shim_socket.connect(folder) as client, client.makefile("rb") as stream:
        client.sendall(b'{"op": "attach", "container": "main"}\n')
        assert b"attached" in stream.readline()
        client.sendall(shim_socket.encode_frame(shim_socket.STDIN, b"hello\n"))
        assert stream.read(11) == shim_socket.encode_frame(shim_socket.STDOUT, b"hello\n")
    assert finished(folder)["containers"]["main"]["ended"] is not None


def test_the_interpreter_and_this_package_are_available_even_in_a_home(pods: Stage) -> None:
    config = container_config(
        "main", "", argv=[sys.executable, "-c", "import argosy; print(argosy.__name__)"]
    )
    folder = pods.run(run_spec(config, visible=interpreter_folders(), hidden=hidden_folders(pods.folder)))
    finished(folder)
    assert output(folder, "main") == "argosy\n"
