"""The node image: found in the engine by the hash of all that goes into it, or built from a pulled or made base."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import docker.errors

from harness.env.docker.engine import engine_failures
from harness.errors import HarnessError, UserError

IMAGE_FILES = Path(__file__).parent / "image"
IMAGE_PARTS = ("Dockerfile", "init.py")
SYSTEM_PACKAGES = ("python3", "openssh-server", "iptables", "iproute2", "procps", "faketime")
NODE_REQUIREMENTS = ("msgspec", "uvloop")
BASE_VARIABLE = "ASSAY_BASE_IMAGE"
DEFAULT_BASE = "debian:bookworm-slim"
MADE_BASE_REPOSITORY = "assay-base"
NODE_REPOSITORY = "assay-node"

NOT_ROOT = 3
NO_DEBOOTSTRAP = 4
_REMEDIES = {
    NOT_ROOT: f"run it as root once, or load a Debian image and name it with {BASE_VARIABLE}",
    NO_DEBOOTSTRAP: f"install debootstrap, or load a Debian image and name it with {BASE_VARIABLE}",
}
"""What to do when `make-base.sh` ends with one of these codes."""

Report = Callable[[str], None]
"""Told in a few words, on any thread, what is being done, for steps that take more than a moment."""


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """What the node image is made of: a base image (None: the default, pulled or else made) and Python's packages,
    pinned. On it come Debian's `packages`, as a layer (`layers.py`); `own` names an image that is taken instead."""

    base: str | None = None
    requirements: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    own: str = ""

    @property
    def tag(self) -> str:
        """The image's name, without layers: a hash over the image's files, its base and its Python packages."""
        digest = hashlib.blake2b(digest_size=8)
        for name in IMAGE_PARTS:
            digest.update(name.encode() + b"\0" + (IMAGE_FILES / name).read_bytes())
        digest.update(repr((self.base, self.requirements, SYSTEM_PACKAGES)).encode())
        return f"{NODE_REPOSITORY}:{digest.hexdigest()}"


def image_spec(packages: tuple[str, ...] = (), own: str = "") -> ImageSpec:
    """The node image for this installation: Python's packages have the versions that the harness itself runs with.

    The environment variable ASSAY_BASE_IMAGE names another base than the default.
    """
    base = os.environ.get(BASE_VARIABLE) or None
    return ImageSpec(base, tuple(f"{name}=={metadata.version(name)}" for name in NODE_REQUIREMENTS), packages, own)


def image_is_built(client: Any, spec: ImageSpec) -> bool:
    """Whether the engine has the image already."""
    return has_image(client, spec.tag)


def ensure_image(client: Any, spec: ImageSpec, report: Report = lambda _: None) -> str:
    """The tag of the node image, built first if the engine lacks it (once per machine; concurrent callers wait).

    Raises UserError when a base can neither be pulled nor made here, HarnessError when building fails.
    """
    with engine_failures("looking for the node image"):
        if has_image(client, spec.tag):
            return spec.tag
    with one_at_a_time():
        if not has_image(client, spec.tag):
            _build(client, spec, report)
    return spec.tag


def has_image(client: Any, tag: str) -> bool:
    """Whether the engine has it."""
    try:
        client.api.inspect_image(tag)
    except docker.errors.ImageNotFound:
        return False
    return True


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Within it no other process of this user makes an image."""
    lock = Path(tempfile.gettempdir()) / f"assay-image-{os.getuid()}.lock"
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build(client: Any, spec: ImageSpec, report: Report) -> None:
    base = _ensure_base(client, spec, report)
    arguments = {"BASE": base, "PACKAGES": " ".join(SYSTEM_PACKAGES)}
    files = {name: (IMAGE_FILES / name).read_bytes() for name in IMAGE_PARTS}
    report("building the node image")
    system = docker_build(client, archive_of(files), arguments, target="system", tag=None)
    version = _python_version(client, system)
    with tempfile.TemporaryDirectory(prefix="assay-python-") as directory:
        _fetch_requirements(spec.requirements, version, Path(directory))
        docker_build(client, archive_of(files, Path(directory)), arguments, target="node", tag=spec.tag)


def _ensure_base(client: Any, spec: ImageSpec, report: Report) -> str:
    wanted = spec.base or DEFAULT_BASE
    made = _made_base_tag()
    with engine_failures("looking for a base image"):
        for tag in (wanted,) if spec.base else (wanted, made):
            if has_image(client, tag):
                return tag
    report(f"pulling the base image {wanted}")
    try:
        client.images.pull(*_repository_and_tag(wanted))
        return wanted
    except docker.errors.DockerException as error:
        if spec.base:
            raise UserError(
                f"The base image {wanted} can't be pulled; name one that the engine has ({error})"
            ) from error
    report("no registry: making a base image with debootstrap (about a minute, once per machine)")
    _make_base(client, made)
    return made


def _repository_and_tag(image: str) -> tuple[str, str]:
    repository, colon, tag = image.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (image, "latest")


def can_make_base() -> str:
    """Empty if a base image can be made on this machine without a registry, else why not and what to do."""
    if os.geteuid() != 0:
        return f"making a base image needs root; {_REMEDIES[NOT_ROOT]}"
    if shutil.which("debootstrap") is None and shutil.which("apt-get") is None:
        return f"debootstrap is not installed; {_REMEDIES[NO_DEBOOTSTRAP]}"
    return ""


def _made_base_tag() -> str:
    script = (IMAGE_FILES / "make-base.sh").read_bytes() + repr(SYSTEM_PACKAGES).encode()
    return f"{MADE_BASE_REPOSITORY}:{hashlib.blake2b(script, digest_size=8).hexdigest()}"


def _make_base(client: Any, tag: str) -> None:
    with tempfile.TemporaryDirectory(prefix="assay-base-", dir="/var/tmp") as directory:
        output = Path(directory) / "base.tar"
        script = ["sh", str(IMAGE_FILES / "make-base.sh"), str(output), *SYSTEM_PACKAGES]
        done = subprocess.run(script, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise _base_failure(done.returncode, done.stderr)
        with engine_failures("importing the base image"):
            client.api.import_image_from_file(str(output), *tag.split(":"))


def _base_failure(code: int, output: str) -> Exception:
    reason = (output.strip().splitlines() or ["no output"])[-1]
    if code in _REMEDIES:
        return UserError(f"The base image can be neither pulled nor made here: {reason}; {_REMEDIES[code]}")
    return HarnessError(f"making the base image failed: {reason}")


def docker_build(
    client: Any,
    context: bytes,
    arguments: Mapping[str, str],
    target: str,
    tag: str | None,
    network: str | None = None,
) -> str:
    """Build an image of a Dockerfile and its files, a tar archive; its id. Raises HarnessError."""
    with engine_failures("building the node image"):
        try:
            image, _ = client.images.build(
                fileobj=io.BytesIO(context),
                custom_context=True,
                buildargs={**arguments, **_proxy_arguments()},
                target=target,
                tag=tag,
                network_mode=network,
                rm=True,
                forcerm=True,
            )
        except docker.errors.BuildError as error:
            raise HarnessError(f"building the node image failed: {_last_words(error)}") from error
    return str(image.id)


def _proxy_arguments() -> dict[str, str]:
    names = ("http_proxy", "https_proxy", "no_proxy")
    return {name: value for name in names if (value := os.environ.get(name) or os.environ.get(name.upper()))}


def _last_words(error: docker.errors.BuildError) -> str:
    lines = [str(part["stream"]).strip() for part in error.build_log if "stream" in part]
    return " | ".join([*(line for line in lines[-3:] if line), str(error)])


def archive_of(files: Mapping[str, bytes], python: Path | None = None) -> bytes:
    """Files, and a folder of Python's packages, as `docker_build` takes them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
        if python is not None:
            archive.add(python, "python")
    return buffer.getvalue()


def _python_version(client: Any, image: str) -> tuple[int, int]:
    program = "import sys; print(*sys.version_info[:2])"
    with engine_failures("asking the image for its Python version"):
        answer = client.containers.run(image, ["python3", "-c", program], remove=True, network_mode="none")
    major, minor = answer.decode().split()
    if (int(major), int(minor)) < (3, 11):
        raise UserError(f"The base image has Python {major}.{minor}; the node program needs 3.11 or later")
    return int(major), int(minor)


def _fetch_requirements(requirements: tuple[str, ...], version: tuple[int, int], target: Path) -> None:
    """Unpack the packages for the image's Python: copied if it is the host's version, else downloaded as wheels."""
    if version == sys.version_info[:2] and platform.libc_ver()[0] == "glibc":
        for requirement in requirements:
            _copy_installed(requirement.split("==")[0], target)
    else:
        _download(requirements, version, target)


def _copy_installed(name: str, target: Path) -> None:
    for file in metadata.files(name) or ():
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        destination = target / file
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.write_bytes(Path(str(file.locate())).read_bytes())
        destination.chmod(0o755 if ".so" in file.name else 0o644)


def _download(requirements: tuple[str, ...], version: tuple[int, int], target: Path) -> None:
    machine = platform.machine()
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in (28, 27, 26, 24, 17)] + [f"manylinux2014_{machine}"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--target", str(target), "--python-version", f"{version[0]}.{version[1]}", "--implementation", "cp"]
    command += [word for name in platforms for word in ("--platform", name)]
    done = subprocess.run([*command, *requirements], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise HarnessError(f"fetching {', '.join(requirements)} for Python {version[0]}.{version[1]} failed: {reason}")
