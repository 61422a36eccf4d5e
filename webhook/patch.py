"""RFC 6902 patches: what leads from the object received to the object wanted, and no more. Pure.

Called by the webhook's application and by ``slackwater admit -o patch``.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

Operation: TypeAlias = dict[str, Any]


def same(left: Any, right: Any) -> bool:
    """Equality of JSON values. Unlike Python's, ``1``, ``1.0`` and ``true`` differ."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def render(before: Any, after: Any) -> list[Operation]:
    """The operations that turn ``before`` into ``after``, in an order in which they apply; empty where nothing differs.

    Lists are compared by position: our changes never move an element.
    """
    return list(_difference(before, after, ""))


def _difference(before: Any, after: Any, path: str) -> Iterator[Operation]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key not in after:
                yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}
            else:
                yield from _difference(value, after[key], f"{path}/{_escaped(key)}")
        for key, value in after.items():
            if key not in before:
                yield {"op": "add", "path": f"{path}/{_escaped(key)}", "value": value}
    elif isinstance(before, list) and isinstance(after, list):
        common = min(len(before), len(after))
        for index in range(common):
            yield from _difference(before[index], after[index], f"{path}/{index}")
        for index in range(len(before) - 1, common - 1, -1):  # from the end, so that the positions stay true
            yield {"op": "remove", "path": f"{path}/{index}"}
        for value in after[common:]:
            yield {"op": "add", "path": f"{path}/-", "value": value}
    elif not same(before, after):
        yield {"op": "replace", "path": path, "value": after}


def _escaped(key: str) -> str:
    """A key as a JSON pointer token (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
