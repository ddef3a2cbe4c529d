"""The content of the images of a test cluster: the machine's Python, shell and basic tools, and our package.

Python has the same path as on the machine; the packages of requirements.lock are in a virtual environment of
the image. Shared libraries are copied as the loader finds them. The image therefore works on the machine on
which it was built, which is the one it runs on.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

import msgspec

from tests.support.assets import PINS, Programs, cache
from tests.support.cluster import images
from tests.support.cluster.images import Layer, LayerWriter

_ROOT: Final = PINS.parent
_LOCK: Final = _ROOT / "requirements.lock"
_ENVIRONMENT: Final = "/opt/venv"
_TOOLS: Final = (
    *("sh", "bash", "cat", "cp", "cut", "date", "dirname", "echo", "env", "expr", "false", "find", "getent"),
    *(
        "grep",
        "head",
        "hostname",
        "id",
        "kill",
        "ln",
        "ls",
        "mkdir",
        "mv",
        "nproc",
        "ps",
        "pwd",
        "readlink",
        "rm",
    ),
    *(
        "sed",
        "seq",
        "sleep",
        "sort",
        "stat",
        "stty",
        "tail",
        "tar",
        "tee",
        "test",
        "touch",
        "tr",
        "true",
        "tty",
    ),
    *("chmod", "dd", "df", "mkfifo", "nsenter", "uname", "wc", "whoami", "xargs"),
)
_NOT_NEEDED: Final = frozenset(
    (
        "test",
        "tests",
        "idlelib",
        "tkinter",
        "turtledemo",
        "lib2to3",
        "ensurepip",
        "site-packages",
        "dist-packages",
    )
) | frozenset(("__pycache__", "distutils", "pydoc_data"))
_USERS: Final = b"""root:x:0:0:root:/root:/bin/sh
sshd:x:100:65534::/run/sshd:/bin/false
nobody:x:65534:65534:nobody:/:/bin/false
"""
_GROUPS: Final = b"root:x:0:\nnogroup:x:65534:\n"
_CONFIG: Final = {
    "Env": [
        f"PATH={_ENVIRONMENT}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG=C.UTF-8",
        "PYTHONDONTWRITEBYTECODE=1",
    ],
    "Cmd": ["python3"],
}


def lasting_archives(programs: Programs) -> list[Path]:
    """The archives of the images that do not contain our package; their names have a hash of the content."""
    _, large = _base()
    program = programs.find("pause")
    pause = large.with_name(f"pause-{hashlib.sha256(program.read_bytes()).hexdigest()[:16]}.tar")
    if not pause.exists():
        with tempfile.TemporaryDirectory(dir=pause.parent) as scratch:
            writer = LayerWriter(Path(scratch) / "layer.tar")
            writer.copy(program, "/pause")
            config = {"Entrypoint": ["/pause"], "User": "65535:65535"}
            images.write_archive(pause, (images.PAUSE,), (writer.done(),), config=config)
    return [pause, large]


def write_own_archive(path: Path) -> None:
    """Write the archive of the image with our package, for nodes that have the other layers."""
    base, _ = _base()
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        layer = _package_layer(Path(scratch))
        names = (images.ARGOSY, images.RELEASED, images.LOCAL)
        images.write_archive(path, names, (base, layer), carried=(layer,), config=_CONFIG)


def _base() -> tuple[Layer, Path]:
    """The layer with Python and its packages, and its archive, from the cache unless they changed."""
    key = hashlib.sha256(_LOCK.read_bytes() + sys.version.encode())
    for module in (__file__, images.__file__):
        key.update(Path(module).read_bytes())
    key.update(sys.base_prefix.encode())
    folder = cache() / "images"
    archive, note = (
        folder / f"python-{key.hexdigest()[:16]}.tar",
        folder / f"python-{key.hexdigest()[:16]}.json",
    )
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "python.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                layer = _write_base(Path(scratch) / "layer.tar")
                note.write_bytes(msgspec.json.encode(layer, enc_hook=str))
                images.write_archive(archive, (images.PYTHON,), (layer,), config=_CONFIG)
        for used in (archive, note):
            os.utime(used)
    return msgspec.json.decode(
        note.read_bytes(), type=Layer, dec_hook=lambda kind, value: kind(value)
    ), archive


def _write_base(path: Path) -> Layer:
    writer = LayerWriter(path)
    for place, mode in (("/tmp", 0o1777), ("/var/tmp", 0o1777), ("/root", 0o755), ("/proc", 0o755)):
        writer.folder(place, mode)
    for place in ("/bin", "/sbin", "/lib", "/lib64"):
        if Path(place).is_symlink():
            writer.link(place, str(Path(place).readlink()))
    writer.content("/etc/passwd", _USERS)
    writer.content("/etc/group", _GROUPS)
    writer.content("/etc/ssh/sshd_config", b"")  # tests mount sshd of the machine
    writer.content("/etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n")
    for extra in (Path("/etc/ssl/certs/ca-certificates.crt"), *Path("/usr/lib/locale").glob("C.*/**/*")):
        if extra.is_file():
            writer.copy(extra, str(extra))
    native_files = [*_tools(writer), *_python(writer), *_packages(writer)]
    for library in _libraries(native_files):
        writer.copy(library, str(library.parent.resolve() / library.name))
    return writer.done()


def _tools(writer: LayerWriter) -> Iterator[Path]:
    for name in _TOOLS:
        if program := shutil.which(name):
            place = Path(program)
            writer.copy(place, str(place.parent.resolve() / name))
            yield place


def _python(writer: LayerWriter) -> Iterator[Path]:
    """Add the interpreter and its library at their paths; returns the native files."""
    interpreter = Path(sys.executable).resolve()
    writer.copy(interpreter, str(interpreter))
    yield interpreter
    library = Path(sysconfig.get_path("stdlib"))
    unneeded = _NOT_NEEDED | {place.name for place in library.glob("config-*")}
    unneeded |= {place.name for place in library.glob("lib-dynload/_tkinter.*")}
    writer.tree(library, str(library), without=unneeded)
    yield from (file for file in library.glob("lib-dynload/*.so") if file.name not in unneeded)
    environment = Path(_ENVIRONMENT)
    writer.content(f"{environment}/pyvenv.cfg", f"home = {interpreter.parent}\n".encode())
    for name in ("python", "python3", f"python{sys.version_info.major}.{sys.version_info.minor}"):
        writer.link(f"{environment}/bin/{name}", str(interpreter))


def _packages(writer: LayerWriter) -> Iterator[Path]:
    """Add the locked packages to the environment of the image; returns the native files."""
    for distribution in _locked():
        for file in distribution.files or ():
            source = Path(str(distribution.locate_file(file))).resolve()
            if not source.is_file() or not source.is_relative_to(sys.prefix):
                continue
            target = f"{_ENVIRONMENT}/{source.relative_to(sys.prefix)}"
            if source.parent.name == "bin" and source.read_bytes()[:2] == b"#!":
                writer.content(target, _with_own_python(source.read_bytes()), 0o755)
            else:
                writer.copy(source, target)
            if ".so" in source.suffixes or source.parent.name == "bin":
                yield source


def _locked() -> Iterator[Distribution]:
    names = {_normal(name) for name in re.findall(r"^([A-Za-z0-9._-]+)==", _LOCK.read_text(), re.MULTILINE)}
    for distribution in distributions(path=[sysconfig.get_path("purelib")]):
        if _normal(distribution.metadata["Name"]) in names:
            yield distribution


def _package_layer(scratch: Path) -> Layer:
    """The layer with our package, with the files of its wheel."""
    command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(scratch))
    subprocess.run(command, cwd=_ROOT, check=True, capture_output=True)
    packages = f"{_ENVIRONMENT}/{Path(sysconfig.get_path('purelib')).relative_to(sys.prefix)}"
    writer = LayerWriter(scratch / "layer.tar")
    with zipfile.ZipFile(next(scratch.glob("*.whl"))) as wheel:
        for name in sorted(wheel.namelist()):
            writer.content(f"{packages}/{name}", wheel.read(name))
    start = b"#!/usr/bin/python3\nimport sys\nfrom argosy.cli.main import main\nsys.exit(main())\n"
    writer.content(f"{_ENVIRONMENT}/bin/argosy", _with_own_python(start), 0o755)
    return writer.done()


def _with_own_python(script: bytes) -> bytes:
    return re.sub(rb"\A#!.*python.*", f"#!{_ENVIRONMENT}/bin/python3".encode(), script)


def _libraries(files: Iterable[Path]) -> Iterator[Path]:
    """The shared libraries that these files need, as the loader finds them."""
    command = ["ldd", *(str(file) for file in files)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    native_files = set(re.findall(r"(?:=> |^\t)(/\S+) \(0x", listed, re.MULTILINE))
    for name in ("libnss_files.so.2", "libnss_dns.so.2"):  # loaded by the C library by name
        native_files |= {str(Path(path).with_name(name)) for path in native_files if "/libc.so." in path}
    for path in sorted(native_files):
        if Path(path).exists() and not Path(path).is_relative_to(sys.prefix):
            yield Path(path)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
