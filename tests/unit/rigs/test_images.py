"""Archives that are written here, and the pip configuration that a build sees."""

import json
import tarfile
from pathlib import Path
from typing import Any

from rigs.images import File, parse_pip_config, render_pip_config, write_oci_archive


def member(archive: tarfile.TarFile, name: str) -> bytes:
    opened = archive.extractfile(name)
    assert opened is not None
    return opened.read()


def blob(archive: tarfile.TarFile, entry: dict[str, Any]) -> bytes:
    content = member(archive, f"blobs/{entry['digest'].replace(':', '/')}")
    assert len(content) == entry["size"]
    return content


def write(target: Path, source: Path) -> Path:
    files = [File("bin", None), File("bin/tool", source), File("bin/link", "tool"), File("etc-hosts", b"x\n", 0o644)]
    write_oci_archive(target, "example.org/tool:1", files, ["/bin/tool"], ["--help"])
    return target


def test_an_archive_is_a_complete_image(tmp_path: Path) -> None:
    (tmp_path / "tool").write_bytes(b"program")
    with tarfile.open(write(tmp_path / "image.tar", tmp_path / "tool")) as archive:
        assert json.loads(member(archive, "oci-layout")) == {"imageLayoutVersion": "1.0.0"}
        (entry,) = json.loads(member(archive, "index.json"))["manifests"]
        assert entry["annotations"] == {"io.containerd.image.name": "example.org/tool:1"}
        manifest = json.loads(blob(archive, entry))
        config = json.loads(blob(archive, manifest["config"]))
        assert config["config"]["Entrypoint"] == ["/bin/tool"]
        assert config["config"]["Cmd"] == ["--help"]
        assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]
        (tmp_path / "layer.tar").write_bytes(blob(archive, manifest["layers"][0]))
    with tarfile.open(tmp_path / "layer.tar") as layer:
        assert [(one.name, one.mode, one.type) for one in layer] == [
            ("bin", 0o755, tarfile.DIRTYPE),
            ("bin/tool", 0o755, tarfile.REGTYPE),
            ("bin/link", 0o755, tarfile.SYMTYPE),
            ("etc-hosts", 0o644, tarfile.REGTYPE),
        ]
        assert member(layer, "bin/tool") == b"program"


def test_the_same_files_make_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "tool").write_bytes(b"program")
    first = write(tmp_path / "1.tar", tmp_path / "tool").read_bytes()
    (tmp_path / "tool").touch()
    assert write(tmp_path / "2.tar", tmp_path / "tool").read_bytes() == first


def test_the_strongest_pip_setting_wins_and_other_commands_do_not_count() -> None:
    listed = "global.cert='/etc/a.crt'\nglobal.timeout='60'\nfreeze.timeout='10'\n:env:.cert='/etc/b.crt'\nnonsense\n"
    assert parse_pip_config(listed) == {"cert": "/etc/b.crt", "timeout": "60"}


def test_a_pip_configuration_keeps_several_values_apart() -> None:
    rendered = render_pip_config({"timeout": "60", "find-links": "/a /b"})
    assert rendered == "[global]\ntimeout = 60\nfind-links =\n    /a\n    /b\n"


def test_an_empty_pip_configuration_is_valid() -> None:
    assert render_pip_config({}) == "[global]\n"
