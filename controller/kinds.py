"""The kinds that can be suspended, as data: how they are named, and where their idleness and their switch stand.

All of them carry a condition of type ``Idle`` that their own controller keeps, and stop when ``spec.suspend`` is true.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IdleKind:
    """One kind. ``policy_type`` is its key below ``policy`` in the policy text."""

    policy_type: str
    kind: str
    group: str
    version: str
    plural: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    @property
    def collection_path(self) -> str:
        """REST path of all objects in all namespaces."""
        return f"/apis/{self.api_version}/{self.plural}"

    def object_path(self, namespace: str, name: str) -> str:
        """REST path of one object."""
        return f"/apis/{self.api_version}/namespaces/{namespace}/{self.plural}/{name}"


_GROUP, _VERSION = "tensorstack.dev", "v1beta1"
KINDS = (
    IdleKind("notebook", "Notebook", _GROUP, _VERSION, "notebooks"),
    IdleKind("tensorboard", "TensorBoard", _GROUP, _VERSION, "tensorboards"),
    IdleKind("explorer", "Explorer", _GROUP, _VERSION, "explorers"),
)


def kind_of(api_version: str, kind: str) -> IdleKind | None:
    """The kind of an object, whatever version of its group it is written in; None where it is none of ours."""
    group = api_version.partition("/")[0]
    return next((known for known in KINDS if known.kind == kind and known.group == group), None)
