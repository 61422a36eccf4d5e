"""The programs of the rig, built from pinned Go modules into the cache.

Who calls it: the cluster and `python -m rigs build`. The three modules in `go/` pin every version; a program
is built once per content of its module's go.mod and go.sum, the build flags and the machine's architecture.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rigs.progress import Progress
from rigs.requirements import MachineUnsuitable, find_program, search_path
from rigs.rootfs import RigError, cache_dir, locked

_MODULES = Path(__file__).parent / "go"

_PROGRESS_INTERVAL_S = 15.0

#: Go from this version on fetches the toolchain that go.mod asks for by itself.
_OLDEST_GO = (1, 21)


@dataclass(frozen=True, slots=True)
class Module:
    """One go.mod of ours. `programs` maps a program's name to its package; `built_as` is what go names it."""

    name: str
    programs: Mapping[str, str]
    flags: tuple[str, ...]
    cold_build: str

    @property
    def directory(self) -> Path:
        return _MODULES / self.name

    @property
    def digest(self) -> str:
        content = hashlib.sha256()
        for part in ("go.mod", "go.sum"):
            content.update((self.directory / part).read_bytes())
        content.update("\0".join((*self.flags, platform.machine())).encode())
        return content.hexdigest()[:12]

    @property
    def cache(self) -> Path:
        return cache_dir() / "bin" / f"{self.name}-{self.digest}"


def pinned_version(module: str, path: str) -> str:
    """The version of the Go module `path` in our module's go.mod, such as `v1.36.3`."""
    text = (_MODULES / module / "go.mod").read_text()
    found = re.search(rf"^\s*(?:require )?{re.escape(path)} (v\S+)", text, re.MULTILINE)
    if found is None:
        raise RigError(f"tests/rigs/go/{module}/go.mod does not pin {path}")
    return found[1]


KUBERNETES_VERSION = pinned_version("kubernetes", "k8s.io/kubernetes")


def _version_flags(version: str) -> str:
    """Linker flags that tell the programs their version; an API server without one misbehaves."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    prefix = "-X k8s.io/component-base/version"
    return f"-s -w {prefix}.gitVersion={version} {prefix}.gitMajor={major} {prefix}.gitMinor={minor}"


_CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")

KUBERNETES = Module(
    "kubernetes",
    {name: f"k8s.io/kubernetes/cmd/{name}" for name in (*_CONTROL_PLANE, "kubelet", "kube-proxy")}
    | {"etcd": "go.etcd.io/etcd/server/v3"},
    ("-trimpath", "-ldflags", _version_flags(KUBERNETES_VERSION)),
    "five minutes",
)
TOOLS = Module(
    "tools",
    {"helm": "helm.sh/helm/v3/cmd/helm", "kwok": "sigs.k8s.io/kwok/cmd/kwok"},
    ("-trimpath", "-ldflags", "-s -w"),
    "a minute and a half",
)
CONTAINERD = Module(
    "containerd",
    {
        name: f"github.com/containerd/containerd/v2/cmd/{name}"
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    },
    ("-trimpath", "-tags", "no_btrfs,no_devmapper,no_zfs", "-ldflags", "-s -w"),
    "a minute",
)

CONTROL_PLANE_MODULES = (KUBERNETES, TOOLS)
ALL_MODULES = (KUBERNETES, TOOLS, CONTAINERD)

#: What a directory in envtest's convention ($KUBEBUILDER_ASSETS) provides.
_ASSETS = ("etcd", "kube-apiserver", "kubectl")


def programs(modules: Sequence[Module], progress: Progress) -> dict[str, Path]:
    """Absolute path of every program of these modules; what the cache lacks is built first.

    Raises:
        MachineUnsuitable: there is no usable Go.
        RigError: a build failed; the sentence ends with what the compiler said.
    """
    assets = _assets(progress)
    found: dict[str, Path] = {}
    for module in modules:
        wanted = [name for name in module.programs if name not in assets]
        _build_missing(module, wanted, progress)
        found.update({name: module.cache / name for name in wanted})
    return found | assets


def module_directory(module: Module, path: str) -> Path:
    """Where Go keeps the source of a dependency; fetched again if Go's module cache was emptied since the build."""
    done = subprocess.run(
        [_go(), "mod", "download", "-json", path],
        cwd=module.directory,
        capture_output=True,
        text=True,
        env=_environment(),
        check=False,
    )
    if done.returncode != 0:
        raise RigError(f"go mod download {path}: {done.stderr.strip() or done.stdout.strip()}")
    return Path(json.loads(done.stdout)["Dir"])


def _assets(progress: Progress) -> dict[str, Path]:
    """The programs below $KUBEBUILDER_ASSETS, where it is set."""
    chosen = os.environ.get("KUBEBUILDER_ASSETS")
    if not chosen:
        return {}
    found = {name: Path(chosen) / name for name in _ASSETS if os.access(Path(chosen) / name, os.X_OK)}
    if not found:
        raise RigError(f"KUBEBUILDER_ASSETS is {chosen}, which has none of {', '.join(_ASSETS)}; correct or unset it")
    progress(f"using {', '.join(found)} of KUBEBUILDER_ASSETS")
    return found


def _build_missing(module: Module, wanted: Sequence[str], progress: Progress) -> None:
    def missing() -> list[str]:
        return [name for name in wanted if not (module.cache / name).is_file()]

    if not missing():
        return
    with locked(module.cache):
        names = missing()  # somebody else may have built them while we waited for the lock
        if not names:
            return
        module.cache.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f"{module.cache.name}.making-", dir=module.cache.parent))
        try:
            progress(f"building {', '.join(names)} from Go modules (cold: about {module.cold_build} on two cores)")
            _go_build(module, names, work, progress)
            for name in names:
                os.replace(work / built_as(module.programs[name]), module.cache / name)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _go_build(module: Module, names: Sequence[str], target: Path, progress: Progress) -> None:
    packages = [module.programs[name] for name in names]
    # -v prints each package as it is compiled: the measure of progress.
    command = [_go(), "build", "-v", *module.flags, "-o", f"{target}{os.sep}", *packages]
    log = target.with_suffix(".log")
    with open(log, "wb") as output:
        build = subprocess.Popen(
            command, cwd=module.directory, stdout=output, stderr=subprocess.STDOUT, env=_environment()
        )
        try:
            _follow(build, log, module.name, progress)
        finally:
            if build.poll() is None:
                build.terminate()
                build.wait()
    if build.returncode != 0:
        lines = [line for line in log.read_text(errors="replace").splitlines() if ":" in line or " " in line]
        raise RigError(f"go build of {module.name} failed; its log is {log}:\n" + "\n".join(lines[-15:]))
    log.unlink()


def _follow(build: subprocess.Popen[bytes], log: Path, name: str, progress: Progress) -> None:
    started = time.monotonic()
    while True:
        try:
            build.wait(_PROGRESS_INTERVAL_S)
            return
        except subprocess.TimeoutExpired:
            compiled = log.read_bytes().count(b"\n")
            progress(f"  {name}: {compiled} packages compiled in {time.monotonic() - started:.0f} s")


def built_as(package: str) -> str:
    """What `go build` names the program: the last path element that is not a major version."""
    parts = package.split("/")
    return parts[-2] if re.fullmatch(r"v\d+", parts[-1]) else parts[-1]


def _go() -> str:
    found = find_program("go")
    if found is None:
        raise MachineUnsuitable(
            "not installed: go; the rig's programs are built from Go modules. Install Go 1.21 or later from go.dev/dl"
        )
    version = subprocess.run([found, "version"], capture_output=True, text=True, check=False).stdout
    numbers = re.search(r"go(\d+)\.(\d+)", version)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < _OLDEST_GO:
        raise MachineUnsuitable(f"{version.strip()} is too old; install Go 1.21 or later from go.dev/dl")
    return found


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PATH": search_path(),
        "CGO_ENABLED": "0",
        "GOFLAGS": "-buildvcs=false -mod=readonly",
        "GOWORK": "off",
    }
