"""What databases need beside the node image: Debian's packages as a layer on it, or an image of the user's own.

What has to be installed is found by apt here, against the list of what the image has, and installed there without a
network. Where the image is not of this machine's release of Debian, apt in the image does both, with a network.
"""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import docker.errors

from harness.env.docker.engine import engine_failures
from harness.env.docker.images import (
    IMAGE_FILES,
    NODE_REPOSITORY,
    ImageSpec,
    Report,
    archive_of,
    docker_build,
    ensure_image,
    has_image,
    one_at_a_time,
)
from harness.errors import HarnessError, UserError

BASE_LABEL, PACKAGES_LABEL, LISTS_LABEL = "assay.base", "assay.packages", "assay.lists"
"""Of a layer: what it is on, what was asked for, and which of apt's lists said what comes with that: while these are
the same, so is the layer."""

APT_LISTS = Path("/var/lib/apt/lists")
PACKAGE_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")

_LAYER = """FROM {base}
COPY packages /tmp/packages
RUN printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d && \\
    {install} && rm -rf /usr/sbin/policy-rc.d /tmp/packages /var/lib/apt/lists/*
LABEL {labels}
"""
"""`policy-rc.d` keeps packages from starting what they bring."""

_HERE = "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends"
_WITHOUT_NETWORK = f"{_HERE} /tmp/packages/*.deb"

_OWN = """FROM {base}
RUN test -x /usr/sbin/sshd || {{ echo "assay: it has no sshd (/usr/sbin/sshd)"; exit 1; }}; \\
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || \\
        {{ echo "assay: it has no Python 3.9"; exit 1; }}; \\
    mkdir -p /etc/assay /opt/assay /var/lib/assay /run/sshd
COPY init.py /usr/local/lib/assay-init.py
ENTRYPOINT ["python3", "-S", "-E", "/usr/local/lib/assay-init.py"]
"""


Closure: TypeAlias = tuple[tuple[str, str], ...]
"""Everything that apt would install beside what an image has: (name, version), in its order."""


def parse_closure(simulated: str) -> Closure:
    """What `apt-get --simulate install` says that it would install: `Inst NAME [OLD] (VERSION RELEASE …)`."""
    found = re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+)", simulated, re.MULTILINE)
    return tuple((name.split(":")[0], version) for name, version in found)


def layer_tag(base: str, packages: Sequence[str], closure: Closure) -> str:
    """The name of the layer: a hash over the base, the packages, and the versions of all that comes with them."""
    words = repr((base, sorted(packages), sorted(closure), _LAYER))
    return f"{NODE_REPOSITORY}:{hashlib.blake2b(words.encode(), digest_size=8).hexdigest()}"


def ensure_node_image(client: Any, spec: ImageSpec, report: Report = lambda _: None) -> str:
    """The tag of what nodes are made of, made first if the engine lacks it: the user's own image, or the node image,
    with the packages that are asked for. Raises UserError and HarnessError."""
    base = ensure_own(client, spec.own, report) if spec.own else ensure_image(client, spec, report)
    return ensure_packages(client, base, spec.packages, report) if spec.packages else base


def ensure_packages(client: Any, base: str, packages: Sequence[str], report: Report) -> str:
    """The tag of the layer with these packages on the image `base`, made first if the engine lacks it.

    Raises UserError for a package that there is not, HarnessError where making it fails.
    """
    for name in packages:
        if not PACKAGE_NAME.fullmatch(name):
            raise UserError(f"{name!r} is no name of a Debian package.")
    labels = {BASE_LABEL: base, PACKAGES_LABEL: " ".join(sorted(packages)), LISTS_LABEL: _lists()}
    with engine_failures("looking for the layer of packages"):
        wanted = {"label": [f"{name}={value}" for name, value in labels.items()]}
        named = (tag for image in client.api.images(filters=wanted) for tag in image["RepoTags"] or ())
        known = next((str(tag) for tag in named if tag.startswith(f"{NODE_REPOSITORY}:")), None)
    if known is not None:
        return known
    with tempfile.TemporaryDirectory(prefix="assay-packages-") as directory, one_at_a_time():
        status, release = _of_image(client, base)
        here = release == _release(Path("/etc/os-release"))
        folder = Path(directory)
        (folder / "status").write_bytes(status)
        closure = parse_closure(_apt(folder, packages, "--simulate")) if here else ()
        tag = layer_tag(base, packages, closure)
        with engine_failures("looking for the layer of packages"):
            if has_image(client, tag):
                return tag
        report(f"installing {', '.join(packages)} on the node image (a minute or two, once per machine)")
        (folder / "archives" / "partial").mkdir(parents=True)
        if here:
            _apt(folder, packages, "--download-only", "--quiet=2")
        install = _WITHOUT_NETWORK if here else f"apt-get update && {_HERE} {' '.join(packages)}"
        files = {f"packages/{path.name}": path.read_bytes() for path in sorted((folder / "archives").glob("*.deb"))}
        files["packages/names"] = " ".join(packages).encode()
        told = " ".join(f'{name}="{value}"' for name, value in labels.items())
        content = archive_of({"Dockerfile": _LAYER.format(base=base, install=install, labels=told).encode(), **files})
        docker_build(client, content, {}, target="", tag=tag, network="none" if here else None)
        return tag


def ensure_own(client: Any, image: str, report: Report) -> str:
    """The tag of an image of the user's own, made to be a node; raises UserError for one that can't be."""
    with engine_failures("looking for the image"):
        try:
            found = client.api.inspect_image(image)["Id"]
        except docker.errors.ImageNotFound as error:
            raise UserError(f"The engine has no image {image}; pull or build it first.") from error
    init = (IMAGE_FILES / "init.py").read_bytes()
    digest = hashlib.blake2b(repr((found, _OWN)).encode() + init, digest_size=8).hexdigest()
    tag = f"{NODE_REPOSITORY}:{digest}"
    with one_at_a_time():
        if not has_image(client, tag):
            report(f"making nodes of the image {image}")
            content = archive_of({"Dockerfile": _OWN.format(base=image).encode(), "init.py": init})
            try:
                docker_build(client, content, {}, target="", tag=tag, network="none")
            except HarnessError as error:
                lacks = re.search(r"assay: (it has no [^|]*)", str(error))
                if lacks is None:
                    raise
                raise UserError(f"The image {image} can't be a node: {lacks[1].strip()}.") from error
    return tag


def _lists() -> str:
    """Which lists apt has here: their names, sizes and times."""
    found = sorted((each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in APT_LISTS.glob("*_*"))
    return hashlib.blake2b(repr(found).encode(), digest_size=8).hexdigest()


def _apt(folder: Path, packages: Sequence[str], *options: str) -> str:
    """What apt-get says of installing them beside what the status file has; raises UserError, HarnessError."""
    settings = {
        "Dir::State::status": folder / "status",
        "Dir::State::extended_states": folder / "extended_states",
        "Dir::Cache::archives": f"{folder / 'archives'}/",
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "root",
    }
    told = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    command = ["apt-get", "install", "-y", "--no-install-recommends", *options, *told, *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    reason = next((line for line in done.stderr.splitlines() if line.startswith("E:")), done.stderr.strip())
    if "Unable to locate package" in reason:
        raise UserError(f"Debian has no such package here: {reason.removeprefix('E: ')} (`apt-get update` may help).")
    raise HarnessError(f"apt-get could not bring {', '.join(packages)}: {reason}")


def _of_image(client: Any, image: str) -> tuple[bytes, tuple[str, str]]:
    """The image's list of packages, and which release it is of."""
    status = _file_of(client, image, "/var/lib/dpkg/status")
    return status, _release_in(_file_of(client, image, "/usr/lib/os-release").decode())


def _file_of(client: Any, image: str, path: str) -> bytes:
    with engine_failures(f"reading {path} of the image"):
        container = client.api.create_container(image, entrypoint=["true"])["Id"]
        try:
            chunks, _ = client.api.get_archive(container, path)
            with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
                content = archive.extractfile(archive.getmembers()[0])
                return b"" if content is None else content.read()
        finally:
            client.api.remove_container(container, v=True, force=True)


def _release(path: Path) -> tuple[str, str] | None:
    return _release_in(path.read_text()) if path.exists() else None


def _release_in(text: str) -> tuple[str, str]:
    fields = dict(re.findall(r'^(ID|VERSION_CODENAME)="?([^"\n]*)"?$', text, re.MULTILINE))
    return fields.get("ID", ""), fields.get("VERSION_CODENAME", "")
