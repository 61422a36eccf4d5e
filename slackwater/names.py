"""Every name that another program can see: labels, annotations, resources, kinds, defaults.

Each stands here once, so that renaming or auditing one is one search.
"""

from typing import Final

DOMAIN: Final = "slackwater.io"
API_VERSION: Final = f"{DOMAIN}/v1alpha1"
SYSTEM_NAMESPACE: Final = "slackwater-system"

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB

# -- the lent resource --------------------------------------------------------------------------------
RESOURCE: Final = f"{DOMAIN}/colocation-memory"
"""Extended resource, counted in blocks."""
DEFAULT_BLOCK_SIZE: Final = 512 * MIB
"""Bytes of one block. Small enough for useful pods, large enough that a 2 TiB node needs 4,096 ids."""

# -- quality of service -------------------------------------------------------------------------------
QOS_LABEL: Final = f"{DOMAIN}/qos"
KOORDINATOR_QOS_LABEL: Final = "koordinator.sh/qosClass"
KATALYST_QOS_ANNOTATION: Final = "katalyst.kubewharf.io/qos_level"
KOORDINATOR_SUB_PRIORITY_LABEL: Final = "koordinator.sh/priority"

PRIORITY_CLASSES: Final = {
    "slackwater-prod": 9000,
    "slackwater-mid": 7000,
    "slackwater-batch": 5000,
    "slackwater-free": 3000,
}
DEFAULT_BE_PRIORITY_CLASS: Final = "slackwater-batch"

# -- annotations --------------------------------------------------------------------------------------
BLOCK_SIZE_ANNOTATION: Final = f"{DOMAIN}/block-size"
"""Bytes per block, written with the blocks; the node agent multiplies by it."""
ORIGINAL_ANNOTATION: Final = f"{DOMAIN}/original"
PROFILES_ANNOTATION: Final = f"{DOMAIN}/profiles"
EXCLUDE_ANNOTATION: Final = f"{DOMAIN}/exclude"
EVICT_PRIORITY_ANNOTATION: Final = f"{DOMAIN}/evict-priority"
IDLE_SINCE_ANNOTATION: Final = f"{DOMAIN}/idle-since"
SUSPENDED_AT_ANNOTATION: Final = f"{DOMAIN}/suspended-at"
SUSPENDED_BY_ANNOTATION: Final = f"{DOMAIN}/suspended-by"
RESUMED_AT_ANNOTATION: Final = f"{DOMAIN}/resumed-at"
LEND_ANNOTATION: Final = f"{DOMAIN}/lend"
"""On a Node: "false" keeps it from lending."""

KOORDINATOR_EVICTION_PRIORITY_ANNOTATION: Final = "koordinator.sh/eviction-priority"
KOORDINATOR_EVICTION_POLICY_ANNOTATION: Final = "koordinator.sh/eviction-policy"
KOORDINATOR_EVICTION_ENABLED_LABEL: Final = "koordinator.sh/eviction-enabled"
KOORDINATOR_RESERVATION_ANNOTATION: Final = "node.koordinator.sh/reservation"
KOORDINATOR_STRATEGY_ANNOTATION: Final = "node.koordinator.sh/colocation-strategy"
KOORDINATOR_RECLAIM_RATIO_LABEL: Final = "node.koordinator.sh/memory-reclaim-ratio"
KOORDINATOR_BATCH_MEMORY: Final = "kubernetes.io/batch-memory"

LIMIT_RANGER_ANNOTATION: Final = "kubernetes.io/limit-ranger"
"""Where LimitRanger tells which values it filled in."""
KOORDINATOR_SKIP_RESOURCES_ANNOTATION: Final = "config.koordinator.sh/skip-update-resources"
"""On a profile, any value: pods keep their resources as they were sent."""

CONFIG_SOURCE_ANNOTATION: Final = "kubernetes.io/config.source"
CONFIG_MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
CONFIG_HASH_ANNOTATION: Final = "kubernetes.io/config.hash"
CONTROL_PLANE_LABEL: Final = "node-role.kubernetes.io/control-plane"

# -- objects ------------------------------------------------------------------------------------------
SLO_CONFIG_MAP: Final = "slo-controller-config"
SLO_THRESHOLD_KEY: Final = "resource-threshold-config"
SLO_COLOCATION_KEY: Final = "colocation-config"
IDLE_CONFIG_MAP: Final = "resource-keeper-policy-config"
IDLE_POLICY_KEY: Final = "policy.yaml"

NODESLACKS_PATH: Final = f"/apis/{API_VERSION}/nodeslacks"
PROFILES_PATH: Final = f"/apis/{API_VERSION}/colocationprofiles"
KOORDINATOR_API_VERSION: Final = "config.koordinator.sh/v1alpha1"
KOORDINATOR_PROFILES_PATH: Final = f"/apis/{KOORDINATOR_API_VERSION}/clustercolocationprofiles"
PRIORITY_CLASSES_PATH: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
NAMESPACES_PATH: Final = "/api/v1/namespaces"

SCHEDULER_NAME: Final = "slackwater-scheduler"
DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"

FIELD_MANAGER: Final = "slackwater"
