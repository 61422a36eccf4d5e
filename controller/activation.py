"""Put the webhook's rules in force, and keep them: only once the CA is in place and an endpoint has answered.

The chart ships the MutatingWebhookConfiguration empty and its rules in a ConfigMap. A rule that is active before a
webhook can answer would refuse every best-effort pod, so the leader asks the Service for ``/readyz`` over TLS, with our
own CA, before it writes them. Later it repairs what somebody changed; it does not take rules away when the webhook is
down, because best-effort pods must not slip through as ordinary ones.
"""

import base64
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import urllib3

from slackwater.adapters.documents import load_single_document
from slackwater.adapters.kube import KubeClient
from slackwater.errors import InputError, Problem
from slackwater.objects import integer, mapping, sequence, string_map, text

RULES_KEY = "webhooks.yaml"
_PROBE_TIMEOUT_S = 2.0


def rules_to_write(
    current: Sequence[Mapping[str, Any]], wished: Sequence[Mapping[str, Any]], ca_bundle: bytes
) -> list[dict[str, Any]] | None:
    """The webhooks to write, or None where those in force are as wished.

    What the API server fills in by default is no difference; what somebody has added (an objectSelector) is one.
    Fields that only a later Kubernetes knows are left to it.
    """
    encoded = base64.b64encode(ca_bundle).decode("ascii")
    complete = [_with_defaults(rule, encoded) for rule in wished]
    same = len(current) == len(complete) and all(
        all(actual.get(key) == value for key, value in rule.items())
        for actual, rule in zip(current, complete, strict=True)
    )
    return None if same else complete


def _with_defaults(rule: Mapping[str, Any], ca_bundle: str) -> dict[str, Any]:
    """The webhook as the API server stores it (admissionregistration.k8s.io/v1 defaults)."""
    client = dict(mapping(rule, "clientConfig"))
    if "service" in client:
        client["service"] = {"port": 443, **mapping(client, "service")}
    return {
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "reinvocationPolicy": "Never",
        "timeoutSeconds": 10,
        **rule,
        "clientConfig": {**client, "caBundle": ca_bundle},
        "rules": [{"scope": "*", **one} for one in sequence(rule, "rules")],
    }


def read_rules(config_map: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """The wished webhooks of the ConfigMap.

    Raises:
        InputError: the key is missing or does not hold a list of webhooks.
    """
    rules = load_single_document(string_map(config_map, "data").get(RULES_KEY, ""), f"{where}: {RULES_KEY}")
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise InputError([Problem(f"{where}: {RULES_KEY}", "is not a list of webhooks", "reinstall the chart")])
    return rules


def service_answers(client: KubeClient, namespace: str, service: str, ca_bundle: bytes) -> str:
    """Why no endpoint of the Service answers ``/readyz`` with a certificate of ours; empty if one does.

    The Service is called by its cluster address and first port, so that no cluster DNS is needed.

    Raises:
        ApiError: the Service cannot be read.
    """
    spec = mapping(client.get(f"/api/v1/namespaces/{namespace}/services/{service}"), "spec")
    address = text(spec, "clusterIP")
    port = next((port for one in sequence(spec, "ports") if (port := integer(one, "port"))), 443)
    name = f"{service}.{namespace}.svc"
    context = ssl.create_default_context(cadata=ca_bundle.decode("ascii"))
    pool = urllib3.HTTPSConnectionPool(
        address, port, ssl_context=context, server_hostname=name, assert_hostname=name, maxsize=1, retries=False
    )
    try:
        answer = pool.request("GET", "/readyz", timeout=_PROBE_TIMEOUT_S, headers={"Host": name})
    except (urllib3.exceptions.HTTPError, OSError) as error:
        return f"{name} does not answer: {error}"
    finally:
        pool.close()
    return "" if answer.status == 200 else f"{name} is not ready: {answer.data[:200].decode(errors='replace')}"
