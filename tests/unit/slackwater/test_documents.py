"""Input files are read as Kubernetes' own tools read them, and mistakes are told with file and place."""

import io
from pathlib import Path
from typing import Any

import pytest

from slackwater.adapters.documents import load_documents, load_single_document, load_yaml_text
from slackwater.errors import InputError


def value_of(text: str) -> Any:
    return load_single_document(f"value: {text}", "text")["value"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("1:30", "1:30"),
        ("22:22:22", "22:22:22"),
        ("yes", True), ("off", False), ("true", True), ("Null", None), ("~", None), ("", None),
        ("0", 0), ("-7", -7), ("+7", 7), ("010", 8), ("0o10", 8), ("0x10", 16), ("0b101", 5), ("09", 9.0),
        ("1e3", 1000.0), ("1.5", 1.5), (".5", 0.5), ("1_000", "1_000"), ("512Mi", "512Mi"), ("'010'", "010"),
    ],
)  # fmt: skip
def test_scalars_are_what_kubectl_makes_of_them(text: str, value: Any) -> None:
    read = value_of(text)
    assert (read, type(read)) == (value, type(value))


def test_keys_become_strings() -> None:
    assert load_single_document("{1: a, true: b, 1.5: c}", "text") == {"1": "a", "true": "b", "1.5": "c"}


def test_anchors_and_merges_work() -> None:
    text = "base: &base {a: 1}\nother: {<<: *base, b: 2}\n"
    assert load_single_document(text, "text")["other"] == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: 1\na: 2\n", "policy:2:1: is not YAML: key 'a' stands twice"),
        ("a: [1\n", "policy:2:1: is not YAML"),
        ("a: !!python/object/apply:os.system [ls]\n", "policy:1:4: is not YAML"),
        ("? [a]\n: b\n", "policy:1:3: is not YAML"),
        ("a: &a [*a]\n", "policy:1:"),
    ],
)
def test_a_mistake_is_told_with_line_and_column(text: str, place: str) -> None:
    with pytest.raises(InputError) as raised:
        load_yaml_text(text, "policy")
    assert str(raised.value).startswith(place)


@pytest.mark.parametrize("text", ["", "---\n", "a: 1\n---\nb: 2\n"])
def test_one_document_is_asked_for_where_one_is_meant(text: str) -> None:
    with pytest.raises(InputError, match="documents; write one"):
        load_single_document(text, "policy")


def test_streams_lists_json_and_folders_give_one_document_per_object(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("kind: A\n---\n---\nkind: B\n")
    (tmp_path / "a.json").write_text('{"kind": "PodList", "items": [{"kind": "Pod"}, {"kind": "Pod"}]}')
    (tmp_path / "ignored.txt").write_text("kind: C")
    documents = load_documents([str(tmp_path)])
    assert [(document.where, document.kind) for document in documents] == [
        (f"{tmp_path}/a.json.items[0]", "Pod"),
        (f"{tmp_path}/a.json.items[1]", "Pod"),
        (f"{tmp_path}/b.yaml[0]", "A"),
        (f"{tmp_path}/b.yaml[1]", "B"),
    ]


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"kind": "Pod"}'))
    (document,) = load_documents(["-"])
    assert (document.where, document.kind) == ("standard input", "Pod")


def test_every_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "scalar.yaml").write_text("hello")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    paths = [str(tmp_path / name) for name in ("scalar.yaml", "binary.yaml", "absent.yaml")]
    with pytest.raises(InputError) as raised:
        load_documents(paths)
    assert [problem.where for problem in raised.value.problems] == paths


@pytest.mark.parametrize("kind", ["5", "[List]", "null"])
def test_a_kind_that_is_no_text_is_no_kind(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(f"kind: {kind}\nitems: []\n")
    (document,) = load_documents([str(path)])
    assert document.kind == ""
