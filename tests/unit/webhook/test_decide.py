"""The whole admission decision: who is looked at, what a best-effort pod becomes, and that twice is once.

How memory, priorities and profiles come out in detail stands in their own tests.
"""

import copy
import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater import names
from slackwater.policy.profile import CpuRule, Profile
from slackwater.qos import Qos
from slackwater.selectors import LabelSelector
from webhook.decide import (
    Admit,
    Context,
    Decision,
    Deny,
    DenyReason,
    Pass,
    PassReason,
    Settings,
    Subject,
    admit,
)
from webhook.patch import render, same
from webhook.priority import NEVER, PREEMPT, PriorityClass

SUFFIXING = Profile(
    "batch",
    selector=LabelSelector.parse({"matchLabels": {"team": "analytics"}}),
    qos=Qos.BE,
    labels={"tier": "low"},
    label_suffixes={"team": "-be"},
)
CONTEXT = Context(profiles=(SUFFIXING,))


def pod(
    *, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "p", "namespace": "default"}
    if labels is not None:
        metadata["labels"] = labels
    if annotations is not None:
        metadata["annotations"] = annotations
    containers = [{"name": "app", "image": "a", "resources": {"requests": {"memory": "900Mi", "cpu": "1"}}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


def best_effort(**spec: Any) -> dict[str, Any]:
    return pod(labels={names.QOS_LABEL: "BE"}, **spec)


def deployment(labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    template = pod(labels=labels)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": template["spec"]}, **spec},
    }


def decide(raw: dict[str, Any], context: Context = CONTEXT, old: dict[str, Any] | None = None) -> Decision:
    sent = copy.deepcopy(raw)
    decision = admit(Subject(raw, raw["metadata"].get("namespace", "default"), old), context)
    assert same(raw, sent), "the object received was changed"
    return decision


def admitted(raw: dict[str, Any], context: Context = CONTEXT, old: dict[str, Any] | None = None) -> dict[str, Any]:
    decision = decide(raw, context, old)
    assert isinstance(decision, Admit), decision
    return decision.object


def test_a_best_effort_pod() -> None:
    after = admitted(best_effort(priority=0, preemptionPolicy=PREEMPT, schedulerName="default-scheduler"))
    original = after["metadata"]["annotations"].pop(names.ORIGINAL_ANNOTATION)
    assert after == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "default",
            "labels": {"slackwater.io/qos": "BE", "koordinator.sh/qosClass": "BE"},
            "annotations": {"slackwater.io/block-size": "536870912"},
        },
        "spec": {
            "containers": [
                {
                    "name": "app",
                    "image": "a",
                    "resources": {
                        "requests": {"memory": "0", "cpu": "1", "slackwater.io/colocation-memory": "2"},
                        "limits": {"memory": "1Gi", "slackwater.io/colocation-memory": "2"},
                    },
                }
            ],
            "priority": 5000,
            "priorityClassName": "slackwater-batch",
            "preemptionPolicy": NEVER,
            "schedulerName": "slackwater-scheduler",
        },
    }
    assert json.loads(original)["spec"]["containers"]["app"]["resources"]["requests"]["memory"] == "900Mi"


def test_a_selected_pod_gets_the_class_and_says_which_profiles_applied() -> None:
    after = admitted(pod(labels={"team": "analytics"}))
    assert after["metadata"]["labels"] == {
        "team": "analytics-be",
        "tier": "low",
        "slackwater.io/qos": "BE",
        "koordinator.sh/qosClass": "BE",
    }
    assert after["metadata"]["annotations"][names.PROFILES_ANNOTATION] == "batch"


@pytest.mark.parametrize(
    "labels",
    [{"koordinator.sh/qosClass": "BE"}, {"slackwater.io/qos": "BE", "koordinator.sh/qosClass": "LS"}],
    ids=["koordinators-label", "the-native-label-wins"],
)
def test_both_labels_come_out_equal(labels: dict[str, str]) -> None:
    labels_after = admitted(pod(labels=labels))["metadata"]["labels"]
    assert labels_after == {"slackwater.io/qos": "BE", "koordinator.sh/qosClass": "BE"}


def test_katalysts_annotation_makes_a_best_effort_pod() -> None:
    after = admitted(pod(annotations={names.KATALYST_QOS_ANNOTATION: "reclaimed_cores"}))
    assert after["metadata"]["labels"] == {"slackwater.io/qos": "BE", "koordinator.sh/qosClass": "BE"}


def owned(raw: dict[str, Any], kind: str) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "1", "controller": True}
    return {**raw, "metadata": {**raw["metadata"], "ownerReferences": [reference]}}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(pod(), PassReason.NOT_SELECTED, id="no-profile"),
        pytest.param(pod(labels={"slackwater.io/qos": "LS"}), PassReason.NOT_SELECTED, id="online"),
        pytest.param(
            pod(labels={"slackwater.io/qos": "LS", "koordinator.sh/qosClass": "BE"}),
            PassReason.NOT_SELECTED,
            id="online-by-the-native-label",
        ),
        pytest.param(best_effort(nodeName="n1"), PassReason.ALREADY_BOUND, id="bound-by-hand"),
        pytest.param(
            pod(labels={"slackwater.io/qos": "BE"}, annotations={names.CONFIG_MIRROR_ANNOTATION: "x"}),
            PassReason.STATIC_POD,
            id="mirror",
        ),
        pytest.param(
            pod(labels={"slackwater.io/qos": "BE"}, annotations={names.CONFIG_SOURCE_ANNOTATION: "file"}),
            PassReason.STATIC_POD,
            id="static",
        ),
        pytest.param(
            {**best_effort(), "metadata": {"namespace": "kube-system", "labels": {"slackwater.io/qos": "BE"}}},
            PassReason.SYSTEM_NAMESPACE,
            id="kube-system",
        ),
        pytest.param(
            owned(deployment({"slackwater.io/qos": "BE"}), "Widget"),
            PassReason.OWNED_BY_CONTROLLER,
            id="owned-workload",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {"slackwater.io/qos": "BE"}}},
            PassReason.NO_POD_TEMPLATE,
            id="another-kind",
        ),
        pytest.param(
            {**deployment({"slackwater.io/qos": "BE"}), "apiVersion": "example.org/v1"},
            PassReason.NO_POD_TEMPLATE,
            id="another-group",
        ),
        pytest.param(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}},
            PassReason.NO_POD_TEMPLATE,
            id="no-template",
        ),
    ],
)
def test_left_alone(raw: dict[str, Any], reason: PassReason) -> None:
    assert decide(raw) == Pass(reason)


def test_a_pod_of_a_controller_is_changed_at_its_creation() -> None:
    assert "priorityClassName" in admitted(owned(best_effort(), "ReplicaSet"))["spec"]


def test_a_pod_is_never_changed_by_an_update() -> None:
    assert decide(best_effort(), old=best_effort()) == Pass(PassReason.NOT_A_CREATE)


@pytest.mark.parametrize("class_name", ["slackwater-prod", "koord-prod"])
def test_best_effort_with_prod_is_denied(class_name: str) -> None:
    decision = decide(best_effort(priorityClassName=class_name))
    assert isinstance(decision, Deny)
    assert decision.reason is DenyReason.PRIORITY_NOT_ALLOWED
    assert decision.message.startswith(f"Pod default/p: slackwater.io/qos=BE and priorityClass={class_name} (9000)")


def test_a_profile_that_names_a_missing_class_denies() -> None:
    context = Context(profiles=(Profile("p", priority_class_name="stranger"),))
    decision = decide(pod(), context)
    assert isinstance(decision, Deny)
    assert decision.reason is DenyReason.PRIORITY_CLASS_MISSING


def test_a_profile_whose_patch_does_not_fit_denies() -> None:
    context = Context(profiles=(Profile("p", patch={"spec": {"containers": [{"image": "x"}]}}),))
    decision = decide(pod(), context)
    assert decision == Deny(
        DenyReason.PROFILE_PATCH_FAILS,
        "Pod default/p: profile p: spec.patch.spec.containers[0]: has no name; "
        "say which element of containers is meant",
    )


def test_an_online_pod_gets_the_priority_of_its_profile_and_no_blocks() -> None:
    context = Context(
        profiles=(Profile("p", qos=Qos.LS, priority_class_name="gold"),),
        priority_classes={"gold": PriorityClass("gold", 9100, PREEMPT)},
    )
    after = admitted(pod(priority=0), context)
    assert (after["spec"]["priorityClassName"], after["spec"]["priority"]) == ("gold", 9100)
    assert after["spec"]["preemptionPolicy"] == PREEMPT
    assert after["spec"]["containers"] == pod()["spec"]["containers"]


def test_the_globaldefault_class_counts_as_none() -> None:
    context = Context(priority_classes={"usual": PriorityClass("usual", 9500, PREEMPT, is_global_default=True)})
    after = admitted(best_effort(priorityClassName="usual", priority=9500, preemptionPolicy=PREEMPT), context)
    assert (after["spec"]["priorityClassName"], after["spec"]["priority"]) == ("slackwater-batch", 5000)


def test_a_scheduler_of_the_pods_own_is_kept() -> None:
    assert admitted(best_effort(schedulerName="volcano"))["spec"]["schedulerName"] == "volcano"


def test_no_scheduler_is_named_where_the_setting_is_empty() -> None:
    after = admitted(best_effort(), Context(settings=Settings(scheduler_name="")))
    assert "schedulerName" not in after["spec"]


def test_a_profile_may_leave_resources_alone() -> None:
    context = Context(profiles=(Profile("p", qos=Qos.BE, skip_resources=True),))
    after = admitted(pod(), context)
    assert after["spec"]["containers"] == pod()["spec"]["containers"]
    assert "schedulerName" not in after["spec"]
    assert names.BLOCK_SIZE_ANNOTATION not in after["metadata"]["annotations"]


def test_a_profile_may_share_cpu() -> None:
    after = admitted(pod(), Context(profiles=(Profile("p", qos=Qos.BE, cpu=CpuRule.SHARE),)))
    assert after["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "10m"


def test_namespaces_are_selected_by_their_labels_and_always_have_their_name() -> None:
    by_label = Profile("l", qos=Qos.BE, namespace_selector=LabelSelector.parse({"matchLabels": {"lend": "yes"}}))
    by_name = Profile(
        "n",
        qos=Qos.BE,
        namespace_selector=LabelSelector.parse({"matchLabels": {"kubernetes.io/metadata.name": "default"}}),
    )
    assert decide(pod(), Context(profiles=(by_label,))) == Pass(PassReason.NOT_SELECTED)
    assert admitted(pod(), Context(profiles=(by_label,), namespace_labels={"default": {"lend": "yes"}}))
    assert admitted(pod(), Context(profiles=(by_name,)))


# -- templates ----------------------------------------------------------------------------------------------


def test_a_template_gets_its_priority_class_by_name_alone() -> None:
    after = admitted(deployment({"slackwater.io/qos": "BE"}))
    spec = after["spec"]["template"]["spec"]
    assert spec["priorityClassName"] == "slackwater-batch"
    assert not {"priority", "preemptionPolicy"} & spec.keys()
    assert spec["containers"][0]["resources"]["limits"] == {"memory": "1Gi", names.RESOURCE: "2"}


def test_a_cron_job_keeps_its_template_deeper() -> None:
    template = deployment({"slackwater.io/qos": "BE"})["spec"]["template"]
    raw = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "c"},
        "spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": template}}},
    }
    after = admitted(raw)
    assert after["spec"]["schedule"] == "@daily"
    assert "priorityClassName" in after["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def test_an_update_that_does_not_touch_the_template_causes_no_rollout() -> None:
    raw = deployment({"team": "analytics"}, replicas=3)
    old = deployment({"team": "analytics"}, replicas=1)
    assert decide(raw, old=old) == Pass(PassReason.TEMPLATE_UNCHANGED)


def test_a_label_that_the_selector_needs_is_kept() -> None:
    raw = deployment({"team": "analytics"}, selector={"matchLabels": {"team": "analytics"}})
    decision = decide(raw)
    assert isinstance(decision, Admit)
    assert decision.object["spec"]["template"]["metadata"]["labels"]["team"] == "analytics"
    assert decision.warnings == (
        "label team stays as it was sent, because the selector of Deployment default/d needs it",
    )


def test_a_pod_made_from_a_changed_template_is_the_same_pod() -> None:
    """labelSuffixes once, not twice; the API server has worked out the number of the class."""
    template = admitted(deployment({"team": "analytics"}))["spec"]["template"]
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **template["metadata"],
            "labels": {**template["metadata"]["labels"], "pod-template-hash": "abc"},
            "generateName": "d-abc-",
        },
        "spec": {**template["spec"], "priority": 5000, "preemptionPolicy": NEVER, "serviceAccountName": "default"},
    }
    assert decide(owned(made, "ReplicaSet")) == Pass(PassReason.ALREADY_ADMITTED)
    bare = {**made, "spec": {**template["spec"]}}
    assert admitted(bare)["metadata"]["labels"]["team"] == "analytics-be"


# -- twice is once --------------------------------------------------------------------------------------------


def test_an_admitted_pod_is_left_alone() -> None:
    once = admitted(pod(labels={"team": "analytics"}))
    assert decide(once) == Pass(PassReason.ALREADY_ADMITTED)


def test_an_admitted_pod_that_another_webhook_labelled_is_left_alone() -> None:
    once = admitted(pod(labels={"team": "analytics"}))
    once["metadata"]["labels"]["mesh"] = "on"
    once["spec"]["volumes"] = [{"name": "token"}]
    assert decide(once) == Pass(PassReason.ALREADY_ADMITTED)


def test_a_sidecar_that_another_webhook_added_is_counted() -> None:
    once = admitted(best_effort())
    side = {"name": "mesh", "restartPolicy": "Always", "resources": {"limits": {"memory": "256Mi"}}}
    once["spec"]["initContainers"] = [side]
    twice = admitted(once)
    assert twice["spec"]["containers"][0]["resources"]["limits"][names.RESOURCE] == "3"
    assert decide(twice) == Pass(PassReason.ALREADY_ADMITTED)


def test_an_edited_copy_of_an_admitted_pod_counts_as_its_owners() -> None:
    copied = admitted(best_effort())
    copied["spec"]["containers"][0]["resources"]["limits"]["memory"] = "3Gi"
    assert admitted(copied)["spec"]["containers"][0]["resources"]["limits"][names.RESOURCE] == "6"


@pytest.mark.parametrize(
    "record",
    ["nonsense", '{"spec":{"containers":{"app":{"resources":null}}}}', '{"metadata":{"labels":null}}', "[" * 9999],
)
def test_a_made_up_record_is_not_believed(record: str) -> None:
    forged = best_effort()
    forged["metadata"]["annotations"] = {names.ORIGINAL_ANNOTATION: record}
    honest = admitted(best_effort())
    believed_not = admitted(forged)
    assert believed_not["spec"] == honest["spec"]
    assert believed_not["metadata"]["labels"] == honest["metadata"]["labels"]
    assert decide(believed_not) == Pass(PassReason.ALREADY_ADMITTED)


MEMORY = st.sampled_from(["0", "1", "100Mi", "512Mi", "700Mi", "1Gi", "3G", "500Gi"])
RESOURCES = st.fixed_dictionaries(
    {},
    optional={
        kind: st.none()
        | st.dictionaries(st.just("memory"), MEMORY)
        | st.fixed_dictionaries({"cpu": st.just("1")}, optional={"memory": MEMORY})
        for kind in ("requests", "limits")
    },
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("abcdef")},
        optional={"resources": st.none() | RESOURCES, "restartPolicy": st.just("Always"), "image": st.just("x")},
    ),
    max_size=3,
    unique_by=lambda container: str(container["name"]),
)
LABELS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "team": st.sampled_from(["analytics", "web"]),
        "slackwater.io/qos": st.sampled_from(["BE", "LS", "nonsense"]),
        "koordinator.sh/qosClass": st.sampled_from(["BE", "LSE"]),
    },
)
LIMIT_RANGER = "LimitRanger plugin set: cpu, memory request for container a; memory limit for init container b"
ANNOTATIONS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        names.LIMIT_RANGER_ANNOTATION: st.just(LIMIT_RANGER),
        names.BLOCK_SIZE_ANNOTATION: st.sampled_from(["1073741824", "x"]),
        names.ORIGINAL_ANNOTATION: st.sampled_from(["{}", "x", '{"spec":null}']),
    },
)
SPECS = st.fixed_dictionaries(
    {"containers": CONTAINERS},
    optional={
        "initContainers": st.none() | CONTAINERS,
        "overhead": st.fixed_dictionaries({"memory": MEMORY}),
        "resources": st.none() | RESOURCES,
        "priorityClassName": st.sampled_from(["", "slackwater-free", "koord-batch", "eager", "slackwater-prod"]),
        "priority": st.sampled_from([None, 0, 5000, 9000]),
        "schedulerName": st.sampled_from(["default-scheduler", "volcano"]),
    },
)
PODS = st.builds(
    lambda labels, annotations, spec: {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "labels": labels, "annotations": annotations},
        "spec": spec,
    },
    LABELS,
    ANNOTATIONS,
    SPECS,
)
PROFILES = (
    SUFFIXING,
    Profile("mapped", label_keys_mapping={"team": "crew"}, patch={"spec": {"tolerations": [{"operator": "Exists"}]}}),
)
CONTEXTS = st.sampled_from(
    [
        Context(),
        CONTEXT,
        Context(profiles=PROFILES, priority_classes={"eager": PriorityClass("eager", 5200, PREEMPT)}),
        Context(profiles=(Profile("drop", qos=Qos.BE, cpu=CpuRule.DROP),)),
    ]
)


@settings(max_examples=400)
@given(PODS, CONTEXTS)
def test_any_pod_twice_is_once_and_its_patch_applies(raw: dict[str, Any], context: Context) -> None:
    once = decide(raw, context)
    if not isinstance(once, Admit):
        return
    operations = render(raw, once.object)
    assert operations
    assert same(jsonpatch.apply_patch(raw, operations), once.object)
    again = decide(once.object, context)
    assert isinstance(again, Pass)
    without_record = copy.deepcopy(once.object)
    del without_record["metadata"]["annotations"][names.ORIGINAL_ANNOTATION]
    if context.profiles == ():  # nothing but our own class: also without the record, twice is once
        bare = decide(without_record, context)
        assert isinstance(bare, Pass)
        assert bare.reason in (PassReason.NOTHING_TO_CHANGE, PassReason.NOT_SELECTED)


@given(PODS)
def test_a_best_effort_pod_always_holds_what_it_may_use(raw: dict[str, Any]) -> None:
    raw["metadata"]["labels"] = {names.QOS_LABEL: "BE"}
    decision = decide(raw, Context())
    if isinstance(decision, Deny) or not raw["spec"]["containers"]:
        return
    assert isinstance(decision, Admit)
    spec = decision.object["spec"]
    held = sum(
        int(str(each["resources"]["limits"].get(names.RESOURCE, "0")).replace("k", "000"))
        for each in spec["containers"]
    )
    assert held >= 1
    assert spec["preemptionPolicy"] == NEVER
    for each in [*spec["containers"], *(spec.get("initContainers") or [])]:
        assert each["resources"]["requests"]["memory"] == "0"
        assert each["resources"]["limits"]["memory"]
    for each in spec.get("initContainers") or []:
        assert names.RESOURCE not in each["resources"]["limits"]


@given(PODS)
def test_a_pod_that_nothing_selects_comes_back_untouched(raw: dict[str, Any]) -> None:
    raw["metadata"]["labels"] = {"team": "web"}
    assert decide(raw) == Pass(PassReason.NOT_SELECTED)
