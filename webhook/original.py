"""What the owner sent, kept on the object that we changed. Pure.

The annotation ``slackwater.io/original`` holds, as JSON, the former value of every field that we changed: ``null`` for
one that was absent; lists of named elements (containers) as a mapping by name. So a person can read it, the change can
be undone, and a second pass can see the object as its owner sent it.
"""

import json
from collections.abc import Mapping
from typing import Any

from slackwater import names
from slackwater.objects import mapping, string_map
from webhook.patch import same


def annotation(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The record of what ``before`` had where ``after`` differs; the same text for the same difference."""
    return json.dumps(_difference(before, after), sort_keys=True, separators=(",", ":"))


def without_record(template: Mapping[str, Any]) -> dict[str, Any]:
    """``template`` without the annotation; its parts are shared, do not change them."""
    annotations = dict(mapping(template, "metadata", "annotations"))
    annotations.pop(names.ORIGINAL_ANNOTATION, None)
    return {**template, "metadata": {**mapping(template, "metadata"), "annotations": annotations}}


def restored(template: Mapping[str, Any]) -> dict[str, Any] | None:
    """``template`` as its record says that the owner sent it, or None where there is no readable record.

    Anybody can write an annotation: the caller must not believe the answer before it has applied the profiles to it
    and come to ``template`` again.
    """
    text = string_map(template, "metadata", "annotations").get(names.ORIGINAL_ANNOTATION)
    if text is None:
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _undone(without_record(template), record) if isinstance(record, dict) else None


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    record = {
        key: _former(value, after[key]) if key in after else value
        for key, value in before.items()
        if key not in after or not same(value, after[key])
    }
    return record | {key: None for key in after if key not in before}


def _former(before: Any, after: Any) -> Any:
    if isinstance(before, dict) and isinstance(after, dict):
        return _difference(before, after)
    named = _by_name(before)
    if named is not None and list(named) == list(_by_name(after) or ()):
        pairs = zip(named.items(), after, strict=True)
        return {name: _difference(old, new) for (name, old), new in pairs if not same(old, new)}
    return before


def _undone(current: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    undone = dict(current)
    for key, value in record.items():
        if value is None:
            undone.pop(key, None)
        elif isinstance(value, dict):
            present = undone.get(key)
            if _by_name(present) is not None and isinstance(present, list):
                undone[key] = [
                    _undone(element, value[element["name"]])
                    if isinstance(value.get(element["name"]), dict)
                    else element
                    for element in present
                ]
            else:
                undone[key] = _undone(present if isinstance(present, dict) else {}, value)
        else:
            undone[key] = value
    return undone


def _by_name(value: Any) -> dict[str, dict[str, Any]] | None:
    """The elements of a non-empty list by their unique names, or None where it is no such list."""
    if not isinstance(value, list) or not value:
        return None
    if not all(isinstance(element, dict) and isinstance(element.get("name"), str) for element in value):
        return None
    named = {element["name"]: element for element in value}
    return named if len(named) == len(value) else None
