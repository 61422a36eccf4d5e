"""Pinned programs: versions, cache keys, and what is already there."""

import os
import platform
import re
from pathlib import Path

import pytest
from rigs import binaries
from rigs.binaries import ALL_MODULES, KUBERNETES, KUBERNETES_VERSION, Module, pinned_version, programs
from rigs.progress import silent
from rigs.requirements import MachineUnsuitable, ensure_packages, require_linux_root
from rigs.rootfs import RigError


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_version_comes_from_go_mod() -> None:
    assert re.fullmatch(r"v1\.\d+\.\d+", KUBERNETES_VERSION)
    assert pinned_version("tools", "sigs.k8s.io/kwok").startswith("v0.")


def test_a_module_that_is_not_pinned_is_named() -> None:
    with pytest.raises(RigError, match=r"go/tools/go\.mod does not pin example\.org/nothing"):
        pinned_version("tools", "example.org/nothing")


def test_every_module_of_the_staging_area_has_the_version_of_kubernetes() -> None:
    text = (KUBERNETES.directory / "go.mod").read_text()
    replaced = re.findall(r"^\s*(?:replace )?(k8s\.io/\S+) => \1 (\S+)$", text, re.MULTILINE)
    assert len(replaced) > 25
    assert {version for _, version in replaced} == {KUBERNETES_VERSION.replace("v1.", "v0.", 1)}


def test_the_cache_directory_changes_with_the_flags() -> None:
    other = Module(KUBERNETES.name, KUBERNETES.programs, (*KUBERNETES.flags, "-race"), KUBERNETES.cold_build)
    assert other.digest != KUBERNETES.digest
    assert len({module.cache.name for module in ALL_MODULES}) == len(ALL_MODULES)


def test_cached_programs_are_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKWATER_CACHE", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    expected = {name: executable(KUBERNETES.cache / name) for name in KUBERNETES.programs}
    assert programs((KUBERNETES,), silent) == expected


def test_programs_of_kubebuilder_assets_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKWATER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    etcd = executable(tmp_path / "assets" / "etcd")
    for name in set(KUBERNETES.programs) - {"etcd"}:
        executable(KUBERNETES.cache / name)
    said: list[str] = []
    assert programs((KUBERNETES,), said.append)["etcd"] == etcd
    assert said == ["using etcd of KUBEBUILDER_ASSETS"]


def test_empty_kubebuilder_assets_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(RigError, match="has none of etcd"):
        programs((KUBERNETES,), silent)


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("k8s.io/kubernetes/cmd/kubelet", "kubelet"),
        ("go.etcd.io/etcd/server/v3", "server"),
        ("example.org/v2ray", "v2ray"),
    ],
)
def test_a_program_is_named_as_go_names_it(package: str, name: str) -> None:
    assert binaries.built_as(package) == name


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    wanted = {"no-such-program": "package-a", "cni/no-such-plugin": "package-b"}
    message = "not installed: no-such-plugin, no-such-program; .*apt-get install package-a package-b"
    with pytest.raises(MachineUnsuitable, match=message):
        ensure_packages(silent, wanted)


def test_without_root_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MachineUnsuitable, match=r"^a cluster needs root .* run it with sudo\.$"):
        require_linux_root("a cluster")


def test_another_system_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(MachineUnsuitable, match=r"needs Linux .*, and this is Darwin"):
        require_linux_root("a cluster")
