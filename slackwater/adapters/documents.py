"""Read Kubernetes YAML and JSON as Kubernetes' own tools read it.

``sigs.k8s.io/yaml`` turns YAML into JSON first: there are no dates and no base-60 numbers in it, and ``yes``/``on``
are booleans as in YAML 1.1. Python's loader would turn ``2026-01-01`` into a date and ``1:30`` into 90.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from slackwater.errors import InputError, Problem
from slackwater.objects import RawObject

_SIZE_LIMIT = 256 * 1024 * 1024
_SUFFIXES = (".yaml", ".yml", ".json")


class _Loader(yaml.CSafeLoader):
    """Safe YAML without timestamps and base-60 numbers; a repeated key is an error."""

    yaml_implicit_resolvers = {  # noqa: RUF012  replaces the parent's table, never changed
        first: [
            (tag, form)
            for tag, form in resolvers
            if tag not in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
        ]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"[-+]?(?:0|[1-9][0-9]*|0x[0-9a-fA-F]+|0o?[0-7]+|0b[01]+)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?$|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
    ),
    list("-+.0123456789"),
)


def _mapping_without_repeats(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    seen: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, bool):
            key = "true" if key else "false"
        elif isinstance(key, int | float):
            key = key_node.value
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is not a string", key_node.start_mark)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} stands twice", key_node.start_mark)
        seen[key] = loader.construct_object(value_node, deep=True)
    return seen


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node)).replace("0o", "0", 1)
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if digits.startswith(("0x", "0b")):
        return sign * int(digits, 0)
    return sign * int(digits, 8 if len(digits) > 1 and digits.startswith("0") else 10)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping_without_repeats)
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


@dataclass(frozen=True, slots=True)
class Document:
    """One object of an input, and where it came from (``file``, or ``file[2]`` for the third of a stream)."""

    where: str
    raw: dict[str, Any]

    @property
    def kind(self) -> str:
        kind = self.raw.get("kind")
        return kind if isinstance(kind, str) else ""


def load_yaml_text(text: str, where: str) -> list[Any]:
    """Every non-empty document of a YAML (or JSON) text.

    Raises:
        InputError: with the line and column of the mistake.
    """
    try:
        return [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        what = getattr(error, "problem", None) or str(error)
        raise InputError([Problem(place, f"is not YAML: {what}", "check indentation and quotes")]) from error
    except (RecursionError, ValueError) as error:
        raise InputError([Problem(where, f"is not usable YAML: {error}", "write plain Kubernetes objects")]) from error


def load_single_document(text: str, where: str) -> Any:
    """The one document of a YAML text, such as a policy in a ConfigMap.

    Raises:
        InputError: it is not YAML, or not one document.
    """
    documents = load_yaml_text(text, where)
    if len(documents) != 1:
        raise InputError([Problem(where, f"holds {len(documents)} documents", "write one")])
    return documents[0]


def load_documents(paths: Iterable[str]) -> list[Document]:
    """All objects in files, folders (their ``.yaml .yml .json``, by name) and ``-`` (standard input); Lists unwrapped.

    Raises:
        InputError: naming every file that cannot be read and every document that is no object.
    """
    documents: list[Document] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            for where, text in _texts(path):
                documents.extend(_documents_of(text, where))
        except InputError as error:
            problems.extend(error.problems)
        except (OSError, UnicodeDecodeError) as error:
            problems.append(Problem(path, f"cannot be read: {error}", "give a readable YAML or JSON file"))
    if problems:
        raise InputError(problems)
    return documents


def _texts(path: str) -> Iterator[tuple[str, str]]:
    if path == "-":
        yield "standard input", sys.stdin.read(_SIZE_LIMIT)
        return
    place = Path(path)
    if place.is_dir():
        for file in sorted(entry for entry in place.iterdir() if entry.suffix in _SUFFIXES):
            yield str(file), file.read_text(encoding="utf-8")
    else:
        yield path, place.read_text(encoding="utf-8")


def _documents_of(text: str, where: str) -> Iterator[Document]:
    if text.lstrip().startswith("{"):
        try:
            raws = [json.loads(text)]
        except ValueError:
            raws = load_yaml_text(text, where)  # several objects, or YAML's flow style
    else:
        raws = load_yaml_text(text, where)
    for index, raw in enumerate(raws):
        yield from _unwrapped(raw, where if len(raws) == 1 else f"{where}[{index}]")


def _unwrapped(raw: Any, where: str) -> Iterator[Document]:
    if not isinstance(raw, dict):
        raise InputError([Problem(where, f"is a {type(raw).__name__}", "write a Kubernetes object with a kind")])
    if _is_list(raw):
        for index, item in enumerate(raw["items"]):
            yield from _unwrapped(item, f"{where}.items[{index}]")
    else:
        yield Document(where, raw)


def _is_list(raw: RawObject) -> bool:
    kind = raw.get("kind")
    return isinstance(kind, str) and kind.endswith("List") and isinstance(raw.get("items"), list)
