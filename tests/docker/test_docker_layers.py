"""What nodes are made of beside our image: Debian's packages as a layer on it, and images of somebody else's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.env.docker.images import archive_of, docker_build, image_spec
from harness.env.docker.layers import ensure_node_image, ensure_own, ensure_packages
from harness.env.docker.machines import run_once
from harness.errors import UserError
from tests.assay.command_line import assay

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

RUN_ID = "layers"
THEIRS = f"assay-test-of-somebody-else-{os.getpid()}"
STRIPPED = "rm -rf /etc/assay /opt/assay /usr/local/lib/assay-init.py"
LACKING = {
    "iptables": "rm -f /usr/sbin/*tables*",
    "sshd": "rm /usr/sbin/sshd",
    "python": "rm -f /usr/bin/python3*",
}


@pytest.fixture(scope="module")
def base(engine: Any) -> str:
    return ensure_node_image(engine, image_spec())


@pytest.fixture(scope="module")
def theirs(engine: Any, base: str) -> Iterator[dict[str, str]]:
    """Images that know nothing of us, by what each lacks; what nodes were made of them goes with them."""
    known = {tag for image in engine.images.list() for tag in image.tags}
    made = {what: f"{THEIRS}:{what}" for what in LACKING}
    for what, tag in made.items():
        text = f"FROM {base}\nENTRYPOINT []\nRUN {STRIPPED} && {LACKING[what]}\n"
        docker_build(engine, archive_of({"Dockerfile": text.encode()}), {}, "", tag)
    yield made
    for tag in {tag for image in engine.images.list() for tag in image.tags} - known:
        engine.images.remove(tag, force=True)


def test_packages_are_a_layer_that_is_made_once_and_starts_nothing(engine: Any, base: str) -> None:
    told: list[str] = []
    tag = ensure_packages(engine, base, ("time",), told.append)
    try:
        assert ensure_packages(engine, base, ("time",), told.append) == tag
        assert told == ["installing time on the node image (a minute or two, once per machine)"]
        there = run_once(engine, tag, RUN_ID, "ls -d /usr/bin/time /usr/sbin/policy-rc.d /tmp/packages 2>/dev/null")
        assert there.split() == ["/usr/bin/time"]
    finally:
        engine.images.remove(tag, force=True)
    with pytest.raises(UserError, match=r"Debian has no such package here: .*no-such-package"):
        ensure_packages(engine, base, ("no-such-package",), told.append)


def test_an_image_of_somebody_else_s_that_can_be_no_node_is_refused(engine: Any, theirs: dict[str, str]) -> None:
    for what, sentence in (("sshd", r"it has no sshd \(/usr/sbin/sshd\)"), ("python", "it has no Python 3.9")):
        with pytest.raises(UserError, match=f"The image {theirs[what]} can't be a node: {sentence}"):
            ensure_own(engine, theirs[what], lambda _: None)
    with pytest.raises(UserError, match="The engine has no image nobody/has:this; pull or build it first"):
        ensure_own(engine, "nobody/has:this", lambda _: None)


def test_what_an_image_of_somebody_else_s_lacks_costs_the_faults_that_need_it(
    theirs: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert assay(capsys, "new", "database", "kv").code == 0
    run = ("run", "register", "--on", "docker", "--database", "kv/plugin.py", "--image", theirs["iptables"])
    refused = assay(capsys, *run, "--nemesis", "partition")
    assert refused.code == 254
    assert "The nemesis 'partition' can't be used here: no partition fault is offered" in refused.complaint
    answer = assay(capsys, *run, "--nodes", "1", "--nemesis", "kill", "--rate", "30", "--time-limit", "6")
    assert answer.code == 0, answer
    assert f"--image {theirs['iptables']}" in answer.out
