"""The chart as helm renders it: every switch, least privilege, and that the objects agree with the code.

Left out: whether an API server takes the objects (the cluster tests install the chart).
"""

import importlib
from typing import Any

import click
import pytest
import yaml
from component.charts.helm import CHART, NAMESPACE, render, run, template
from unit.extender.states import NOW, nodeslack

from slackwater import names
from slackwater.policy.profile import parse_profile
from slackwater.qos import NATIVE_VALUES, Qos
from slackwater.timestamps import format_time

COMPONENTS = ("webhook", "extender", "nodeagent", "controller")
WORKLOADS = {
    "webhook": ("Deployment", "slackwater-webhook"),
    "extender": ("Deployment", "slackwater-extender"),
    "nodeagent": ("DaemonSet", "slackwater-nodeagent"),
    "controller": ("Deployment", "slackwater-controller"),
}

Objects = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def objects() -> Objects:
    return render()


def pod_spec(objects: Objects, component: str) -> dict[str, Any]:
    return dict(objects[WORKLOADS[component]]["spec"]["template"]["spec"])


def container(objects: Objects, component: str, name: str = "") -> dict[str, Any]:
    return next(item for item in pod_spec(objects, component)["containers"] if item["name"] == (name or component))


def arguments(objects: Objects, component: str) -> dict[str, str]:
    name, *flags = container(objects, component)["args"]
    assert name == component
    return dict(flag.split("=", 1) for flag in flags)


def embedded(objects: Objects, config_map: str, key: str) -> Any:
    return yaml.safe_load(objects["ConfigMap", config_map]["data"][key])


# -- the chart as a whole -------------------------------------------------------------------------------------------


def test_lint_finds_nothing() -> None:
    done = run("lint", str(CHART), "--strict", "--kube-version=1.36.3")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"mode": "lends"}, "/mode"),
        ({"webhok": {}}, "webhok"),
        ({"webhook": {"replicas": 0}}, "/webhook/replicas"),
        ({"blockSize": "half"}, "/blockSize"),
        ({"nodeagent": {"kubeletCgroupRoot": "relative"}}, "/nodeagent/kubeletCgroupRoot"),
    ],
    ids=str,
)
def test_schema_names_the_value_that_is_wrong(values: dict[str, Any], words: str) -> None:
    done = template(values)
    assert done.returncode != 0
    assert words in done.stderr


def test_every_value_is_commented_and_known_to_the_schema() -> None:
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()
    top_level = [index for index, line in enumerate(lines) if line and line[0].isalpha()]
    uncommented = [
        lines[index]
        for index in top_level
        if not lines[index - 1].startswith("#") and not lines[index + 1].lstrip().startswith("#")
    ]
    assert uncommented == []


def test_everything_is_labelled_and_in_the_releases_namespace(objects: Objects) -> None:
    cluster_scoped = {
        "PriorityClass", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding",
        "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
    }  # fmt: skip
    for (kind, name), raw in objects.items():
        assert raw["metadata"]["labels"]["app.kubernetes.io/name"] == "slackwater", name
        if kind in cluster_scoped:
            assert "namespace" not in raw["metadata"], name
        elif name != "slackwater-scheduler-authentication":  # binds a role of kube-system
            assert raw["metadata"]["namespace"] == NAMESPACE, name


# -- processes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_flag_is_one_that_the_component_knows(objects: Objects, component: str) -> None:
    command = importlib.import_module(f"{component}.__main__").main
    assert isinstance(command, click.Command)
    known = {option for parameter in command.params for option in parameter.opts}
    flags = arguments(objects, component)
    assert set(flags) <= known
    parsed = {flag: value.replace("$(NODE_NAME)", "node-1") for flag, value in flags.items()}
    command.make_context(component, [f"{flag}={value}" for flag, value in parsed.items()])


@pytest.mark.parametrize("component", COMPONENTS)
def test_containers_are_confined(objects: Objects, component: str) -> None:
    spec = pod_spec(objects, component)
    assert spec["enableServiceLinks"] is False
    assert "hostPID" not in spec
    assert "hostNetwork" not in spec
    for item in spec["containers"]:
        security = item["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]}, item["name"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert item["resources"]["limits"]["memory"]
        assert item["resources"]["requests"]
        assert item["livenessProbe"]
    if component != "nodeagent":
        assert spec["securityContext"]["runAsNonRoot"] is True


def test_node_agent_sees_only_what_it_needs_of_its_host(objects: Objects) -> None:
    spec = pod_spec(objects, "nodeagent")
    mounts = {mount["name"]: mount for mount in container(objects, "nodeagent")["volumeMounts"]}
    writable = {
        volume["hostPath"]["path"] for volume in spec["volumes"] if not mounts[volume["name"]].get("readOnly", False)
    }
    assert writable == {"/sys/fs/cgroup", "/var/lib/kubelet/device-plugins"}
    assert objects[WORKLOADS["nodeagent"]]["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0
    assert spec["priorityClassName"] == "system-node-critical"


def test_node_that_is_a_cgroup_and_a_kubelet_of_another_kind() -> None:
    values = {
        "mode": "observe",
        "nodeagent": {
            "nodeCgroup": "/rig", "nodeCapacity": "6Gi", "kubeletCgroupRoot": "/rig", "growInterval": "5s",
            "podResourcesDir": "/other/pod-resources", "extraArgs": ["--log-format=text"],
        },
    }  # fmt: skip
    flags = arguments(render(values), "nodeagent")
    assert flags["--mode"] == "observe"
    assert flags["--node-cgroup"] == flags["--kubelet-cgroup-root"] == "/rig"
    assert flags["--node-capacity"] == "6Gi"
    assert flags["--grow-interval"] == "5s"
    assert flags["--pod-resources-socket"] == "/other/pod-resources/kubelet.sock"
    assert flags["--log-format"] == "text"


# -- privileges -----------------------------------------------------------------------------------------------------


def rules(objects: Objects, component: str) -> list[dict[str, Any]]:
    """Every rule that is bound to the component's account."""
    account = {"kind": "ServiceAccount", "name": f"slackwater-{component}", "namespace": NAMESPACE}
    roles = [
        (raw["roleRef"]["kind"], raw["roleRef"]["name"])
        for (kind, _), raw in objects.items()
        if kind.endswith("RoleBinding") and account in raw["subjects"]
    ]
    return [rule for role in roles if role in objects for rule in objects[role]["rules"]]


@pytest.mark.parametrize("component", COMPONENTS)
def test_no_account_may_do_everything_or_read_other_secrets(objects: Objects, component: str) -> None:
    for rule in rules(objects, component):
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        if "secrets" in rule["resources"]:
            assert component == "controller"
            assert rule["verbs"] == ["create"] or set(rule["resourceNames"]) == {"slackwater-ca", "slackwater-tls"}


def test_only_the_node_agents_may_evict_and_nobody_deletes(objects: Objects) -> None:
    for component in COMPONENTS:
        for rule in rules(objects, component):
            assert "pods/eviction" not in rule["resources"] or component == "nodeagent"
            assert not {"delete", "deletecollection"} & set(rule["verbs"])
            if {"pods", "nodes"} & set(rule["resources"]):
                assert set(rule["verbs"]) == {"get", "list", "watch"}


def test_node_agents_writes_are_bound_to_the_node_in_their_token(objects: Objects) -> None:
    policy = objects["ValidatingAdmissionPolicy", "slackwater-nodeagent"]["spec"]
    assert policy["failurePolicy"] == "Fail"
    assert f"system:serviceaccount:{NAMESPACE}:slackwater-nodeagent" in policy["matchConditions"][0]["expression"]
    covered = {resource for rule in policy["matchConstraints"]["resourceRules"] for resource in rule["resources"]}
    assert covered == {"nodeslacks", "nodeslacks/status", "nodes", "nodes/status"}
    binding = objects["ValidatingAdmissionPolicyBinding", "slackwater-nodeagent"]["spec"]
    assert binding == {"policyName": "slackwater-nodeagent", "validationActions": ["Deny"]}


# -- the webhook's rules --------------------------------------------------------------------------------------------


def test_webhook_configuration_is_shipped_without_rules(objects: Objects) -> None:
    assert "webhooks" not in objects["MutatingWebhookConfiguration", "slackwater"]


def test_best_effort_pods_fail_closed_and_all_others_open(objects: Objects) -> None:
    rules = embedded(objects, "slackwater-webhook-rules", "webhooks.yaml")
    assert {rule["name"]: rule["failurePolicy"] for rule in rules} == {
        "best-effort.slackwater.io": "Fail",
        "profiles.slackwater.io": "Ignore",
    }
    strict, open_ = (
        next(condition["expression"] for condition in rule["matchConditions"] if "best-effort" in condition["name"])
        for rule in rules
    )
    assert open_ == f"!({strict})"
    for value in (*NATIVE_VALUES, *Qos):
        assert f"'{value}'" in strict
    for key in (names.QOS_LABEL, names.KOORDINATOR_QOS_LABEL, names.KATALYST_QOS_ANNOTATION):
        assert key in strict


def test_webhook_sees_only_pods_at_their_creation_and_never_its_own(objects: Objects) -> None:
    values = {"webhook": {"excludedNamespaces": ["monitoring"]}}
    for rule in embedded(render(values), "slackwater-webhook-rules", "webhooks.yaml"):
        assert [(r["operations"], r["resources"]) for r in rule["rules"]] == [(["CREATE"], ["pods"])]
        (expression,) = rule["namespaceSelector"]["matchExpressions"]
        assert expression == {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": ["kube-system", "kube-node-lease", NAMESPACE, "monitoring"],
        }
        assert any("config.mirror" in condition["expression"] for condition in rule["matchConditions"])
        assert (rule["sideEffects"], rule["reinvocationPolicy"]) == ("None", "IfNeeded")
        assert rule["clientConfig"]["service"]["path"] == "/mutate"


# -- the scheduler --------------------------------------------------------------------------------------------------


def test_own_scheduler_asks_the_extender_beside_it(objects: Objects) -> None:
    configuration = embedded(objects, "slackwater-scheduler", "config.yaml")
    assert configuration["percentageOfNodesToScore"] == 100
    assert configuration["profiles"] == [{"schedulerName": names.SCHEDULER_NAME}]
    (extender,) = configuration["extenders"]
    assert extender == {
        "urlPrefix": "https://127.0.0.1:8444",
        "filterVerb": "filter",
        "httpTimeout": "2s",
        "ignorable": False,
        "nodeCacheCapable": True,
        "managedResources": [{"name": names.RESOURCE, "ignoredByScheduler": False}],
        "tlsConfig": {
            "serverName": f"slackwater-extender.{NAMESPACE}.svc",
            "caFile": "/etc/slackwater/tls/ca.crt",
        },
    }
    assert container(objects, "extender", "scheduler")["image"] == "registry.k8s.io/kube-scheduler:v1.36.3"
    assert arguments(objects, "webhook")["--scheduler-name"] == names.SCHEDULER_NAME


def test_with_the_clusters_scheduler_none_is_run_and_pods_keep_theirs() -> None:
    objects = render({"scheduler": {"mode": "cluster"}})
    assert [item["name"] for item in pod_spec(objects, "extender")["containers"]] == ["extender"]
    assert not [name for _, name in objects if "scheduler" in name]
    assert arguments(objects, "webhook")["--scheduler-name"] == ""


# -- what belongs to the operator -----------------------------------------------------------------------------------


def test_settings_are_kept_on_uninstall_and_suspend_nothing_as_shipped(objects: Objects) -> None:
    for name in (names.SLO_CONFIG_MAP, names.IDLE_CONFIG_MAP):
        assert objects["ConfigMap", name]["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert embedded(objects, names.IDLE_CONFIG_MAP, names.IDLE_POLICY_KEY) == {"policy": {}}
    assert "data" not in objects["ConfigMap", names.SLO_CONFIG_MAP]


def test_lending_settings_are_written_as_json() -> None:
    strategy = {"clusterStrategy": {"enable": True, "memoryEvictThresholdPercent": 90}}
    objects = render({"sloConfig": {"colocation": {"enable": False}, "thresholds": strategy}})
    assert embedded(objects, names.SLO_CONFIG_MAP, names.SLO_COLOCATION_KEY) == {"enable": False}
    assert embedded(objects, names.SLO_CONFIG_MAP, names.SLO_THRESHOLD_KEY) == strategy


def test_everything_optional_can_be_left_out() -> None:
    off = {key: {"create": False} for key in ("sloConfig", "idlePolicy", "priorityClasses", "crds", "dashboards")}
    kinds = {kind for kind, _ in render(off)}
    assert not kinds & {"PriorityClass", "CustomResourceDefinition"}
    assert {name for kind, name in render(off) if kind == "ConfigMap"} == {
        "slackwater-scheduler", "slackwater-webhook-rules"
    }  # fmt: skip


def test_pod_monitor_is_made_on_demand() -> None:
    objects = render({"metrics": {"podMonitor": {"create": True, "labels": {"release": "prometheus"}}}})
    monitor = objects["PodMonitor", "slackwater"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["podMetricsEndpoints"][0]["port"] == "metrics"


def test_dashboard_is_found_by_grafanas_sidecar(objects: Objects) -> None:
    config_map = objects["ConfigMap", "slackwater-dashboard-overview"]
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert (
        embedded(objects, "slackwater-dashboard-overview", "slackwater-overview.json")["uid"] == "slackwater-overview"
    )


# -- agreement with the code ----------------------------------------------------------------------------------------


def test_priority_classes_are_those_of_the_code_and_best_effort_ones_never_preempt(objects: Objects) -> None:
    classes = {name: raw for (kind, name), raw in objects.items() if kind == "PriorityClass"}
    assert {name: raw["value"] for name, raw in classes.items()} == names.PRIORITY_CLASSES
    policies = {name: raw["preemptionPolicy"] for name, raw in classes.items()}
    assert policies["slackwater-batch"] == policies["slackwater-free"] == "Never"
    assert not any(raw["globalDefault"] for raw in classes.values())


def schema(objects: Objects, name: str) -> dict[str, Any]:
    (version,) = objects["CustomResourceDefinition", name]["spec"]["versions"]
    assert version["subresources"] == {"status": {}}
    assert version["additionalPrinterColumns"]
    return dict(version["schema"]["openAPIV3Schema"])


def unknown_fields(schema: dict[str, Any], value: Any, path: str = "") -> list[str]:
    """Fields of ``value`` that an API server would drop."""
    if isinstance(value, list):
        return [field for item in value for field in unknown_fields(schema.get("items", {}), item, f"{path}[]")]
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    found = [f"{path}.{key}" for key in value if key not in schema["properties"]]
    for key, below in value.items():
        found += unknown_fields(schema["properties"].get(key, {}), below, f"{path}.{key}")
    return found


def test_nodeslack_keeps_every_field_that_is_read_back(objects: Objects) -> None:
    status = nodeslack(
        avoiding=[{"owner": "uid", "until": "2026-01-01T00:00:00Z", "reason": "evicted"}],
        numa=[{"id": 0, "capacity": 1, "used": 1, "blocks": 1}],
        wouldEvict=["default/be"],
        conditions=[
            {"type": "Lending", "status": "True", "reason": "a", "message": "", "lastTransitionTime": format_time(NOW)}
        ],
    )["status"]
    definition = schema(objects, "nodeslacks.slackwater.io")["properties"]["status"]
    assert unknown_fields(definition, status) == []
    assert set(definition["required"]) <= set(status)


def test_profile_fields_are_those_that_the_code_reads(objects: Objects) -> None:
    spec = schema(objects, "colocationprofiles.slackwater.io")["properties"]["spec"]["properties"]
    known = {"apiVersion": names.API_VERSION, "kind": "ColocationProfile", "metadata": {"name": "p"}}
    _, warnings = parse_profile({**known, "spec": dict.fromkeys(spec)})
    assert warnings == ()
    assert set(spec["qosClass"]["enum"]) == {str(value) for value in Qos}


def test_selectors_match_the_pods_of_their_workload(objects: Objects) -> None:
    for component, workload in WORKLOADS.items():
        selector = objects[workload]["spec"]["selector"]["matchLabels"]
        labels = objects[workload]["spec"]["template"]["metadata"]["labels"]
        assert selector.items() <= labels.items()
        assert labels["app.kubernetes.io/component"] == component
    for component in ("webhook", "extender"):
        service = objects["Service", f"slackwater-{component}"]["spec"]
        assert service["selector"] == objects[WORKLOADS[component]]["spec"]["selector"]["matchLabels"]
        port = service["ports"][0]["targetPort"]
        assert any(entry["name"] == port for entry in container(objects, component)["ports"])
