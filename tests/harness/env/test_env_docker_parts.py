"""What of the Docker environment needs no engine: owners of runs, image names, and whose mistake a failure is."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace

import docker.errors
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.env.docker.engine import Owner, connect_engine, engine_failures, is_gone, parse_owner, this_process
from harness.env.docker.images import BASE_VARIABLE, ImageSpec, image_spec
from harness.env.docker.layers import ensure_packages, layer_tag, parse_closure
from harness.env.docker.machines import require_memory
from harness.env.ssh import SshFleet, SshTarget, make_key
from harness.errors import HarnessError, UserError

identifiers = st.text(alphabet="abcdef0123456789-:[]", min_size=1).filter(lambda text: not text.startswith(":"))


@settings(deadline=None)
@given(st.integers(1), st.integers(0), st.uuids(), identifiers)
def test_an_owner_is_read_back_from_its_label(pid: int, ticks: int, boot: object, namespace: str) -> None:
    owner = Owner(pid, ticks, str(boot), namespace)
    assert parse_owner(owner.label()) == owner


@pytest.mark.parametrize("label", ["", "12", "x:1:b:n", "1:x:b:n", "1:2:b"])
def test_a_foreign_label_names_no_owner(label: str) -> None:
    assert parse_owner(label) is None


def test_an_owner_is_gone_when_its_process_or_its_boot_is() -> None:
    here = this_process()
    assert not is_gone(here, here)
    assert is_gone(replace(here, start_ticks=here.start_ticks + 1), here), "the process id was taken over"
    assert is_gone(replace(here, boot_id="another"), here)
    assert not is_gone(replace(here, pid=2**22 + 1, pid_namespace="pid:[1]"), here), "what can't be known is kept"
    assert is_gone(replace(here, pid=2**22 + 1), here)


def test_a_process_that_ended_but_was_not_reaped_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    here = this_process()
    with open(f"/proc/{child.pid}/stat") as stat:
        ticks = int(stat.read().rpartition(")")[2].split()[19])
    owner = replace(here, pid=child.pid, start_ticks=ticks)
    assert not is_gone(owner, here)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(owner, here)
    child.communicate()


def test_an_image_is_named_by_everything_that_goes_into_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = {ImageSpec().tag, ImageSpec("debian:trixie").tag, ImageSpec(None, ("msgspec==1.0",)).tag}
    assert len(tags) == 3
    assert image_spec().tag == image_spec().tag
    plain = image_spec()
    monkeypatch.setenv(BASE_VARIABLE, "debian:trixie")
    assert image_spec().base == "debian:trixie"
    assert image_spec().tag != plain.tag


SIMULATED = """
Inst libpq5 [15.1-1] (15.20-0+deb12u1 Debian:12.15/oldstable [amd64])
Inst postgresql-15:amd64 (15.20-0+deb12u1 Debian:12.15/oldstable [amd64]) []
Conf libpq5 (15.20-0+deb12u1 Debian:12.15/oldstable [amd64])
"""


def test_a_layer_is_named_by_its_base_its_packages_and_all_that_comes_with_them() -> None:
    closure = parse_closure(SIMULATED)
    assert closure == (("libpq5", "15.20-0+deb12u1"), ("postgresql-15", "15.20-0+deb12u1"))
    tags = {layer_tag("base", ("a", "b"), closure), layer_tag("other", ("a", "b"), closure)}
    tags |= {layer_tag("base", ("a",), closure), layer_tag("base", ("a", "b"), closure[1:])}
    assert len(tags) == 4
    assert layer_tag("base", ("b", "a"), closure[::-1]) in tags


@pytest.mark.parametrize("name", ["", "A", "a b", "-o", "a;b", "../a"])
def test_what_is_no_name_of_a_package_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="no name of a Debian package"):
        ensure_packages(None, "base", (name,), print)


def test_no_engine_is_one_sentence_to_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    with pytest.raises(UserError) as refused:
        connect_engine()
    assert "start one" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_engine_that_fails_later_is_our_failure() -> None:
    with (
        pytest.raises(HarnessError, match="failed while making it: no space left"),
        engine_failures("making it"),
    ):
        raise docker.errors.APIError("500 Server Error", explanation="no space left")


def test_a_machine_without_ssh_is_our_failure_that_names_it() -> None:
    async def connect() -> None:
        fleet, target = SshFleet(), SshTarget("127.0.0.1", port=1, key=make_key(), host_key=make_key().public)
        try:
            await fleet.add("t1", target, lambda host: host.connect(timeout_s=0.2))
        finally:
            fleet.close()

    with pytest.raises(HarnessError, match="SSH to t1"):
        asyncio.run(connect())


def test_more_nodes_than_the_machine_can_hold_are_refused() -> None:
    require_memory(8, 1024.0)
    with pytest.raises(UserError, match=r"59 nodes take 3.7 GiB of memory, and the machine .* has 2.0: use fewer"):
        require_memory(59, 2048.0)
