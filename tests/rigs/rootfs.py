"""A small root file system with Python, of the very release that this machine runs.

Who calls it: the image builder of the cluster rig (as the base of our container images) and the VM rig
(as what the VM boots). It is made once with debootstrap and kept in the cache; nobody writes into it
afterwards.

Which archive to ask, and which key must have signed it, is read from this machine's own apt
configuration, so that a mirror, a proxy or a local archive configured there is honoured here too.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

Progress = Callable[[str], None]

#: What is on top of a minimal system: the interpreter, its venv module (the image installs our wheel
#: with it), and the certificates that TLS clients look for.
PACKAGES = ("python3", "python3-venv", "ca-certificates")

#: Components of the archive that the packages above may live in, where the machine has them enabled
#: (Debian keeps them all in main, Ubuntu keeps python3-venv in universe).
_COMPONENTS = ("main", "universe")

#: Not needed by any process of ours, and two thirds of the size: package lists and downloaded packages,
#: documentation, translations. `copyright` files stay: the licences ask for it.
_TRIM = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/man", "usr/share/info", "usr/share/locale")

#: Files that the trimming must leave as empty directories, because programs expect them.
_KEPT_EMPTY = ("var/cache/apt", "var/lib/apt/lists", "var/log")


#: debootstrap lives, and finds its own programs, in directories that a user's PATH may lack.
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


class RigError(Exception):
    """A rig cannot be set up or did not do its work; the sentence says what to do about it."""


@dataclass(frozen=True, slots=True)
class AptArchive:
    """One archive of this machine's apt configuration."""

    uri: str
    codename: str
    components: tuple[str, ...]
    keyring: str | None


def cache_dir() -> Path:
    """Where built things are kept between runs: $SLACKWATER_CACHE, else below the XDG cache directory."""
    chosen = os.environ.get("SLACKWATER_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "slackwater"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`.lock, so that two runs at once make a thing only once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def debian_root(progress: Progress) -> Path:
    """Return the directory with the root file system; make it (about a minute) where it is not cached.

    Needs root (debootstrap makes device files and runs programs inside). Treat the result as read only.
    """
    codename = os_release()["VERSION_CODENAME"]
    digest = hashlib.sha256("\n".join((codename, *PACKAGES, *_TRIM)).encode()).hexdigest()[:12]
    target = cache_dir() / "rootfs" / f"{codename}-{digest}"
    if target.is_dir():
        return target
    with locked(target):
        if target.is_dir():
            return target
        if shutil.which("debootstrap", path=_PATH) is None:
            raise RigError("the root file system needs debootstrap; install it with: apt-get install debootstrap")
        if os.geteuid() != 0:
            raise RigError("the root file system is made by debootstrap, which needs root: run as root")
        work = Path(tempfile.mkdtemp(prefix=f"{target.name}.making-", dir=target.parent))
        try:
            _debootstrap(work / "root", archive(codename, progress), progress)
            _trim(work / "root")
            (work / "root").rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


def os_release() -> dict[str, str]:
    """The fields of /etc/os-release, unquoted."""
    fields: dict[str, str] = {}
    for line in Path("/etc/os-release").read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals:
            fields[name] = value.strip("\"'")
    return fields


def archive(codename: str, progress: Progress) -> AptArchive:
    """The archive from which this machine's apt installs its own release.

    Raises:
        RigError: apt knows none, even after its package lists were refreshed.
    """
    found = _archives(codename)
    if not found:
        refresh_package_lists(progress)
        found = _archives(codename)
    if not found:
        raise RigError(
            f"apt on this machine has no archive with the component main of {codename}; "
            "add one to /etc/apt/sources.list.d and run apt-get update"
        )
    return found[0]


def refresh_package_lists(progress: Progress) -> None:
    """Run `apt-get update`, which needs root; a fresh machine has no lists at all."""
    progress("refreshing apt's package lists")
    done = subprocess.run(
        ["apt-get", "update", "-q"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise RigError(f"apt-get update failed with status {done.returncode}:\n{done.stdout.strip()}")


def _archives(codename: str) -> list[AptArchive]:
    """The archives that have the component main of a release.

    `apt-get indextargets` prints one paragraph of fields per index that apt has fetched, after apt has
    read every form of its configuration (one-line and deb822 sources, mirror lists, options).
    """
    printed = _output(["apt-get", "indextargets", "Created-By: Packages", f"Release: {codename}"])
    found: dict[str, AptArchive] = {}
    for paragraph in printed.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
        uri, component = fields.get("Repo-URI", ""), fields.get("Component", "")
        if component not in _COMPONENTS:
            continue
        before = found.get(uri)
        components = (*(before.components if before else ()), component)
        keyring = fields.get("Signed-By") or _distribution_keyring()
        found[uri] = AptArchive(uri, codename, components, keyring)
    return [one for one in found.values() if "main" in one.components]


def apt_proxy_environment() -> dict[str, str]:
    """The proxies of apt's configuration as the environment variables that other programs read."""
    names = ("http_proxy", "Acquire::http::Proxy", "https_proxy", "Acquire::https::Proxy")
    pairs = (line.split("=", 1) for line in _output(["apt-config", "shell", *names]).splitlines())
    found = {name: value.strip("'") for name, value in pairs}
    # "DIRECT" is apt's word for no proxy; other programs would take it for a host name.
    return {name: value for name, value in found.items() if "://" in value}


def _distribution_keyring() -> str | None:
    """Where the distribution keeps its keys, for sources that name no keyring of their own."""
    path = Path(f"/usr/share/keyrings/{os_release()['ID']}-archive-keyring.gpg")
    return str(path) if path.is_file() else None


def _debootstrap(root: Path, source: AptArchive, progress: Progress) -> None:
    progress(f"making a {source.codename} root file system with Python (about a minute, once)")
    command = [
        "debootstrap",
        "--variant=minbase",
        f"--include={','.join(PACKAGES)}",
        f"--components={','.join(source.components)}",
        *([f"--keyring={source.keyring}"] if source.keyring else []),
        source.codename,
        str(root),
        source.uri,
    ]
    environment = {**os.environ, **apt_proxy_environment(), "DEBIAN_FRONTEND": "noninteractive", "PATH": _PATH}
    log = root.parent.with_suffix(".log")
    with open(log, "wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, env=environment, check=False)
    if done.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise RigError(f"debootstrap failed with status {done.returncode}; its log is {log}:\n{tail}")
    log.unlink()


def _trim(root: Path) -> None:
    for name in _TRIM:
        shutil.rmtree(root / name, ignore_errors=True)
    for name in _KEPT_EMPTY:
        (root / name).mkdir(parents=True, exist_ok=True)
    for directory, _, names in os.walk(root / "usr/share/doc"):
        for name in names:
            if name != "copyright":
                (Path(directory) / name).unlink()


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
