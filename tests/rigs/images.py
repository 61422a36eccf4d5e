"""Container images without a registry: archives that `ctr images import` takes.

Who calls it: the cluster (pause, busybox), the demo and the tests (our product image and the stock scheduler).
The small ones are written here, byte for byte the same each time; the product image is built by buildah from
the repository's Containerfile, on a base made by debootstrap. All archives are kept in the cache.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rigs.mounts import unmount_below
from rigs.progress import Progress
from rigs.requirements import IMAGE_PROGRAMS, ensure_packages, program, require_linux_root, search_path
from rigs.rootfs import RigError, cache_dir, debian_root, locked

PAUSE = "slackwater.io/rigs/pause:1"
BUSYBOX = "docker.io/library/busybox:1.36"
BASE = "localhost/slackwater-base:bookworm"

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

#: Product archives of earlier trees that are kept; each is the size of the image.
_KEPT_BUILDS = 3


@dataclass(frozen=True, slots=True)
class File:
    """One entry of a layer. A text is a symbolic link's target, a path is a file's source, None a directory."""

    name: str
    source: Path | bytes | str | None
    mode: int = 0o755


def pause() -> Path:
    """Archive of the image that holds a pod's namespaces: it sleeps."""
    return _archive(
        PAUSE, [File("bin", None), File("bin/busybox", _busybox())], ["/bin/busybox", "sleep", "2147483647"], []
    )


def busybox() -> Path:
    """Archive of a shell with the usual small programs; `head -c 200m /dev/zero | tail` makes memory pressure."""
    applets = subprocess.run([_busybox(), "--list"], capture_output=True, text=True, check=True).stdout.split()
    files = [File("bin", None), File("bin/busybox", _busybox())]
    files += [File(f"bin/{name}", "busybox") for name in sorted(set(applets) - {"busybox"})]
    files += [File("tmp", None, 0o1777), File("root", None, 0o700), File("etc", None)]
    files += [File("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", 0o644), File("etc/group", b"root:x:0:\n", 0o644)]
    return _archive(BUSYBOX, files, [], ["/bin/sh"])


def kube_scheduler(binary: Path, version: str) -> Path:
    """Archive of the stock scheduler under the name of the official image, made from the built program."""
    directories = [File(name, None) for name in ("usr", "usr/local", "usr/local/bin", "tmp")]
    return _archive(
        f"registry.k8s.io/kube-scheduler:{version}",
        [*directories, File("usr/local/bin/kube-scheduler", binary)],
        ["/usr/local/bin/kube-scheduler"],
        [],
    )


def build_image(repo: Path, tag: str, progress: Progress) -> Path:
    """Build `repo`'s Containerfile on our base and return an archive named `tag`; seconds if nothing changed.

    Needs root. The build finds the package index, certificates and proxy that pip uses on this machine; nothing
    of that configuration stays in the image.

    Raises:
        RigError: the build failed; the sentence ends with its last lines.
    """
    require_linux_root("building the image")
    ensure_packages(progress, IMAGE_PROGRAMS)
    root = debian_root(progress)
    digest = _digest([tag, root.name, *_source_entries(repo)])
    directory = cache_dir() / "images"
    target = directory / f"built-{digest}.tar"
    if target.is_file():
        os.utime(target)
        return target
    with locked(target):
        if not target.is_file():
            with _Buildah.store() as buildah:
                buildah.ensure_base(root, progress)
                progress(f"building the image {tag}")
                buildah.build(repo, tag, target)
            _forget_old_builds(directory)
    return target


class _Buildah:
    """buildah with a store of our own in the cache."""

    def __init__(self, store: Path) -> None:
        self._log = store / "build.log"
        options = [f"--root={store / 'root'}", f"--runroot={store / 'run'}", "--storage-driver=overlay"]
        self._command = [program("buildah"), *options]
        self._store = store

    @classmethod
    @contextmanager
    def store(cls) -> Iterator[_Buildah]:
        """The store, locked for one user, and without mounts afterwards."""
        directory = cache_dir() / "buildah"
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory / "store"):
            try:
                yield cls(directory)
            finally:
                unmount_below(directory)

    def ensure_base(self, root: Path, progress: Progress) -> None:
        """The image `BASE` from a root file system directory; made again when that directory has another name."""
        label = "slackwater.io/rigs/root"
        template = f'{{{{index .OCIv1.Config.Labels "{label}"}}}}'
        if self._run("inspect", "--type=image", f"--format={template}", BASE, check=False).strip() == root.name:
            return
        progress("making the base image")
        container = self._run("from", "scratch").strip()
        try:
            self._run("add", "--quiet", container, str(root), "/")
            self._run("config", "--label", f"{label}={root.name}", "--env", _PATH, "--cmd", "python3", container)
            self._run("commit", "--quiet", container, BASE)
        finally:
            self._run("rm", container, check=False)

    def build(self, repo: Path, tag: str, target: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="slackwater-build-") as name:
            volumes = _pip_volumes(Path(name))
            self._run(
                "bud",
                "--isolation=chroot",
                "--layers",
                "--pull-never",
                f"--build-arg=BASE={BASE}",
                *(f"--volume={source}:{place}:ro" for source, place in volumes),
                f"--tag={tag}",
                f"--file={repo / 'Containerfile'}",
                str(repo),
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_suffix(".making")
        temporary.unlink(missing_ok=True)
        try:
            self._run("push", "--quiet", tag, f"docker-archive:{temporary}:{tag}")
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)

    def _run(self, *arguments: str, check: bool = True) -> str:
        environment = {**os.environ, "PATH": search_path(), "BUILDAH_ISOLATION": "chroot", "TMPDIR": str(self._store)}
        done = subprocess.run(
            [*self._command, *arguments], capture_output=True, text=True, env=environment, check=False
        )
        with open(self._log, "a") as log:
            log.write(f"$ buildah {' '.join(arguments)}\n{done.stdout}{done.stderr}\n")
        if check and done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
            raise RigError(f"buildah {arguments[0]} failed; its log is {self._log}:\n{tail}")
        return done.stdout


def _pip_volumes(directory: Path) -> list[tuple[str, str]]:
    """What the build mounts so that pip inside works as pip here does: (source, place in the container)."""
    listed = subprocess.run(
        ["python3", "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    settings = parse_pip_config(listed)
    file = directory / "pip.conf"
    file.write_text(render_pip_config(settings))
    file.chmod(0o600)
    volumes = [(str(file), "/etc/pip.conf")]
    places = [Path("/etc/ssl/certs"), *(Path(settings[name]) for name in ("cert", "find-links") if name in settings)]
    for place in places:
        covered = any(place.is_relative_to(known) for _, known in volumes)
        if place.is_absolute() and place.exists() and not covered:
            volumes.append((str(place), str(place)))
    return volumes


def parse_pip_config(listed: str) -> dict[str, str]:
    """Global settings in the output of `pip config list`: lines such as `:env:.cert='/etc/x.crt'`.

    The output goes from the weakest source to the strongest, so a later line wins.
    """
    found = {}
    for line in listed.splitlines():
        key, equals, value = line.partition("=")
        section, dot, name = key.rpartition(".")
        if equals and dot and section in {"global", ":env:", "install"}:
            found[name] = value.strip().strip("'\"")
    return found


def render_pip_config(settings: Mapping[str, str]) -> str:
    """A pip.conf with these settings; several values stand on lines of their own, as pip wants them."""
    lines = ["[global]"]
    for name, value in settings.items():
        values = value.replace("\\n", "\n").split()
        lines.append(
            f"{name} = {values[0]}" if len(values) == 1 else f"{name} =" + "".join(f"\n    {v}" for v in values)
        )
    return "\n".join(lines) + "\n"


def _source_entries(repo: Path) -> Iterator[str]:
    """Name and content digest of everything that goes into the image, in a fixed order."""
    project = tomllib.loads((repo / "pyproject.toml").read_text()) if (repo / "pyproject.toml").is_file() else {}
    wheel = project.get("tool", {}).get("hatch", {}).get("build", {}).get("targets", {}).get("wheel", {})
    roots = [
        "Containerfile",
        ".containerignore",
        ".dockerignore",
        "pyproject.toml",
        "requirements.lock",
        "README.md",
        "LICENSE",
    ]
    for root in [*roots, *wheel.get("packages", [])]:
        path = repo / root
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                yield f"{file.relative_to(repo)} {hashlib.sha256(file.read_bytes()).hexdigest()}"


def _forget_old_builds(directory: Path) -> None:
    builds = sorted(directory.glob("built-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in builds[_KEPT_BUILDS:]:
        old.unlink(missing_ok=True)
        old.with_name(f"{old.name}.lock").unlink(missing_ok=True)


def _busybox() -> Path:
    return Path(program("busybox"))


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _archive(name: str, files: Sequence[File], entrypoint: list[str], command: list[str]) -> Path:
    """An OCI archive of one layer named `name`, from the cache if its content is the same."""
    parts = [name, *entrypoint, "|", *command]
    for file in files:
        content = file.source.read_bytes() if isinstance(file.source, Path) else file.source
        raw = content if isinstance(content, bytes) else str(content).encode()
        parts.append(f"{file.name} {file.mode:o} {hashlib.sha256(raw).hexdigest()}")
    short = name.rpartition("/")[2].replace(":", "-")
    target = cache_dir() / "images" / f"{short}-{_digest(parts)}.tar"
    if target.is_file():
        return target
    with locked(target):
        if target.is_file():
            return target
        work = Path(tempfile.mkdtemp(prefix=f"{target.stem}.making-", dir=target.parent))
        try:
            write_oci_archive(work / "archive.tar", name, files, entrypoint, command)
            os.replace(work / "archive.tar", target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


def write_oci_archive(
    target: Path, name: str, files: Sequence[File], entrypoint: Sequence[str], command: Sequence[str]
) -> None:
    """Write an OCI image layout as a tar: one uncompressed layer, times and owners zero."""
    layer = target.with_suffix(".layer")
    with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as output:
        for file in files:
            _add(output, file)
    with open(layer, "rb") as content:
        layer_digest = hashlib.file_digest(content, "sha256").hexdigest()
    settings: dict[str, list[str]] = {"Env": [_PATH]}
    settings |= {"Entrypoint": list(entrypoint)} if entrypoint else {}
    settings |= {"Cmd": list(command)} if command else {}
    config = {
        "architecture": _GO_ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
    }
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as output:
        kind = "application/vnd.oci.image"
        config_entry = _add_blob(output, f"{kind}.config.v1+json", json.dumps(config).encode())
        _add(output, File(f"blobs/sha256/{layer_digest}", layer, 0o644))
        layer_entry = {
            "mediaType": f"{kind}.layer.v1.tar",
            "digest": f"sha256:{layer_digest}",
            "size": layer.stat().st_size,
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": config_entry,
            "layers": [layer_entry],
        }
        manifest_entry = _add_blob(output, f"{kind}.manifest.v1+json", json.dumps(manifest).encode())
        # The annotation that containerd reads the full image name from.
        manifest_entry |= {"annotations": {"io.containerd.image.name": name}}
        index = {"schemaVersion": 2, "mediaType": f"{kind}.index.v1+json", "manifests": [manifest_entry]}
        _add(output, File("index.json", json.dumps(index).encode(), 0o644))
        _add(output, File("oci-layout", b'{"imageLayoutVersion":"1.0.0"}', 0o644))
    layer.unlink()


def _add_blob(output: tarfile.TarFile, media_type: str, content: bytes) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    _add(output, File(f"blobs/sha256/{digest}", content, 0o644))
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _add(output: tarfile.TarFile, file: File) -> None:
    entry = tarfile.TarInfo(file.name)
    entry.mode = file.mode
    match file.source:
        case None:
            entry.type = tarfile.DIRTYPE
            output.addfile(entry)
        case str(link):
            entry.type, entry.linkname = tarfile.SYMTYPE, link
            output.addfile(entry)
        case bytes(content):
            entry.size = len(content)
            output.addfile(entry, io.BytesIO(content))
        case path:
            entry.size = path.stat().st_size
            with open(path, "rb") as opened:
                output.addfile(entry, opened)
