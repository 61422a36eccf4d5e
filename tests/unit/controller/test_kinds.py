"""The kinds that can be suspended are known by group and name, and stand where the API server serves them."""

import pytest

from controller.kinds import KINDS, kind_of
from slackwater.policy.idle import TYPES


@pytest.mark.parametrize(
    ("api_version", "kind", "policy_type"),
    [
        ("tensorstack.dev/v1beta1", "Notebook", "notebook"),
        ("tensorstack.dev/v1beta1", "TensorBoard", "tensorboard"),
        ("tensorstack.dev/v1", "Explorer", "explorer"),
        ("tensorstack.dev/v1beta1", "Tensorboard", None),
        ("kubeflow.org/v1", "Notebook", None),
        ("v1", "Notebook", None),
        ("", "", None),
    ],
)
def test_kinds_are_known_by_group_and_name(api_version: str, kind: str, policy_type: str | None) -> None:
    known = kind_of(api_version, kind)
    assert (known.policy_type if known else None) == policy_type


def test_every_type_of_the_policy_is_a_kind() -> None:
    assert tuple(kind.policy_type for kind in KINDS) == TYPES


def test_paths_are_those_of_the_api_server() -> None:
    assert KINDS[1].collection_path == "/apis/tensorstack.dev/v1beta1/tensorboards"
    assert KINDS[2].object_path("ns", "x") == "/apis/tensorstack.dev/v1beta1/namespaces/ns/explorers/x"
