"""Strategic merge patches of a pod, as the API server applies them. Pure.

Mappings merge, ``null`` removes, lists of pods' named things merge by their key and every other list is replaced. The
directives ``$patch: delete | replace | merge`` and ``$deleteFromPrimitiveList/…`` are understood; ``$setElementOrder``
and ``$retainKeys`` only steer order and unions between clients, and change nothing here.
Source: the patchStrategy and patchMergeKey tags of k8s.io/api/core/v1.
"""

from collections.abc import Mapping
from typing import Any

from slackwater.errors import InputError, Problem

_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ownerReferences": "uid",
}
_PRIMITIVE_LISTS = ("finalizers",)
_DELETE_FROM = "$deleteFromPrimitiveList/"
_IGNORED = ("$setElementOrder/", "$retainKeys")


def merge(original: Mapping[str, Any], patch: Mapping[str, Any], where: str = "patch") -> dict[str, Any]:
    """``original`` with ``patch`` applied; neither is changed, parts may be shared.

    Raises:
        InputError: the patch does not fit: a list element without its key, a directive that nobody knows.
    """
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise InputError([Problem(f"{where}.$patch", f"is {directive!r}", "use merge, replace or delete")])
    merged = dict(original)
    for key, value in patch.items():
        if key == "$patch" or key.startswith(_IGNORED):
            continue
        if key.startswith(_DELETE_FROM):
            _delete_primitives(merged, key.removeprefix(_DELETE_FROM), value, f"{where}.{key}")
        elif value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            present = merged.get(key)
            merged[key] = merge(present if isinstance(present, Mapping) else {}, value, f"{where}.{key}")
        elif isinstance(value, list):
            merged[key] = _merged_list(key, merged.get(key), value, f"{where}.{key}")
        else:
            merged[key] = value
    return merged


def _delete_primitives(merged: dict[str, Any], key: str, values: Any, where: str) -> None:
    if not isinstance(values, list):
        raise InputError([Problem(where, f"is {values!r}", "write a list of values to remove")])
    present = merged.get(key)
    if isinstance(present, list):
        merged[key] = [value for value in present if value not in values]


def _merged_list(key: str, present: Any, patch: list[Any], where: str) -> list[Any]:
    current = present if isinstance(present, list) else []
    if key in _PRIMITIVE_LISTS:
        return current + [value for value in patch if value not in current]
    merge_key = _MERGE_KEYS.get(key)
    if merge_key is None:
        return patch
    elements = list(current)
    if any(isinstance(element, Mapping) and element.get("$patch") == "replace" for element in patch):
        elements = []
    for index, element in enumerate(patch):
        place = f"{where}[{index}]"
        if not isinstance(element, Mapping):
            raise InputError([Problem(place, f"is {element!r}", f"write an element with {merge_key}")])
        if element.get("$patch") == "replace":
            continue
        if merge_key not in element:
            raise InputError([Problem(place, f"has no {merge_key}", f"say which element of {key} is meant")])
        matches = [
            number
            for number, other in enumerate(elements)
            if isinstance(other, Mapping) and other.get(merge_key) == element[merge_key]
        ]
        if element.get("$patch") == "delete":
            elements = [other for number, other in enumerate(elements) if number not in matches]
        elif matches:
            elements[matches[0]] = merge(elements[matches[0]], element, place)
        else:
            elements.append(merge({}, element, place))
    return elements
