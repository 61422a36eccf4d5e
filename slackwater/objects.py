"""Tolerant reading of raw Kubernetes objects (decoded JSON).

Servers and users may leave any field out or send ``null``; these accessors then give an empty value instead of an
exception, so that readers state what they need and nothing more.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

RawObject: TypeAlias = Mapping[str, Any]
_EMPTY: RawObject = {}


def mapping(raw: Any, *path: str) -> RawObject:
    """The mapping at ``path``, or an empty one where it is absent, null or something else."""
    value = raw
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else _EMPTY


def sequence(raw: Any, *path: str) -> Sequence[Any]:
    """The list at ``path``, or an empty one."""
    *parents, last = path
    value = mapping(raw, *parents).get(last)
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def text(raw: Any, *path: str) -> str:
    """The string at ``path``, or ``""``."""
    *parents, last = path
    value = mapping(raw, *parents).get(last)
    return value if isinstance(value, str) else ""


def integer(raw: Any, *path: str) -> int | None:
    """The integer at ``path``, or None. Booleans are not integers."""
    *parents, last = path
    value = mapping(raw, *parents).get(last)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def string_map(raw: Any, *path: str) -> dict[str, str]:
    """Labels or annotations at ``path``: entries whose value is a string."""
    return {key: value for key, value in mapping(raw, *path).items() if isinstance(value, str)}


def object_key(raw: RawObject) -> str:
    """``namespace/name``, or ``name`` for a cluster-scoped object."""
    namespace, name = text(raw, "metadata", "namespace"), text(raw, "metadata", "name")
    return f"{namespace}/{name}" if namespace else name
