"""The leader's upkeep of certificates and webhook rules.

A turn every minute, at once when the rules or the configuration change, and every second while something is missing.
"""

import ipaddress
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from certs.store import Names, ensure, service_names
from controller import metrics
from controller.activation import read_rules, rules_to_write, service_answers
from slackwater.adapters.kube import ApiError, KubeClient, NotFound
from slackwater.adapters.logs import kv
from slackwater.adapters.reflector import Reflector
from slackwater.errors import SlackwaterError
from slackwater.objects import sequence, text

_LOG = logging.getLogger("slackwater.controller.upkeep")
_TURN_S = 60.0
_SOON_S = 1.0
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@dataclass(frozen=True, slots=True)
class Objects:
    """The names of everything that upkeep reads and writes."""

    namespace: str
    ca_secret: str
    tls_secret: str
    webhook_configuration: str
    rules_config_map: str
    webhook_service: str = "slackwater-webhook"
    extender_service: str = "slackwater-extender"


class Upkeep:
    """Runs :meth:`turn` in a thread while this replica leads."""

    def __init__(self, client: KubeClient, objects: Objects, is_leading: Callable[[], bool]) -> None:
        self._client = client
        self._objects = objects
        self._is_leading = is_leading
        self._led = False
        self._last_problem = ""
        self._wake = threading.Event()
        config_maps = f"/api/v1/namespaces/{objects.namespace}/configmaps"
        self._watched = [
            Reflector(
                client, path, field_selector=f"metadata.name={name}", on_change=lambda _type, _object: self._wake.set()
            )
            for path, name in ((_WEBHOOKS, objects.webhook_configuration), (config_maps, objects.rules_config_map))
        ]

    def start(self, stop: threading.Event) -> threading.Thread:
        """Run until ``stop`` is set."""
        for reflector in self._watched:
            reflector.start(stop)
        thread = threading.Thread(target=self._run, args=(stop,), name="upkeep", daemon=True)
        thread.start()
        return thread

    def _run(self, stop: threading.Event) -> None:
        next_at_s = 0.0
        while not stop.is_set():
            # Short waits, so that the end and a change of leadership are noticed.
            changed = self._wake.wait(_SOON_S)
            if not changed and time.monotonic() < next_at_s and self._led == self._is_leading():
                continue
            self._wake.clear()
            self._led = self._is_leading()
            done = False
            if self._led:
                try:
                    done = self.turn(datetime.now(UTC))
                except SlackwaterError as error:
                    metrics.FAILURES.labels("upkeep").inc()
                    self._say(str(error))
                except Exception:  # noqa: BLE001  one bad turn must not end the upkeep; logged and counted
                    metrics.FAILURES.labels("upkeep").inc()
                    _LOG.exception("upkeep failed")
            next_at_s = time.monotonic() + (_TURN_S if done else 0.0)

    def turn(self, now: datetime) -> bool:
        """Certificates, then rules; True when nothing is left to do soon.

        Raises:
            ApiError, InputError: a step failed; the next turn tries again.
        """
        objects = self._objects
        served = service_names(objects.webhook_service, objects.namespace)
        served |= service_names(objects.extender_service, objects.namespace) | {"localhost", "127.0.0.1"}
        served |= self._cluster_address(objects.extender_service)
        # Below our own namespace, however the cluster's domain is called, and the short names that clients may use.
        domains = {objects.webhook_service, objects.extender_service, objects.namespace, "localhost"}
        domains |= {f"{objects.namespace}.svc", f"{objects.namespace}.svc.cluster.local"}
        certificates = Names(objects.namespace, objects.ca_secret, objects.tls_secret, served, frozenset(domains))
        bundle = ensure(self._client, certificates, now)
        where = f"ConfigMap {objects.namespace}/{objects.rules_config_map}"
        path = f"/api/v1/namespaces/{objects.namespace}/configmaps/{objects.rules_config_map}"
        wished = read_rules(self._client.get(path), where)
        configuration = self._client.get(f"{_WEBHOOKS}/{objects.webhook_configuration}")
        rules = rules_to_write(sequence(configuration, "webhooks"), wished, bundle)
        if rules is None:
            metrics.RULES_ACTIVE.set(1)
            self._last_problem = ""
            return True
        metrics.RULES_ACTIVE.set(0)
        problem = service_answers(self._client, objects.namespace, objects.webhook_service, bundle)
        if problem:
            self._say(f"webhook rules are not put in force yet: {problem}")
            return False
        self._client.replace(f"{_WEBHOOKS}/{objects.webhook_configuration}", {**configuration, "webhooks": rules})
        metrics.RULE_WRITES.inc()
        metrics.RULES_ACTIVE.set(1)
        self._last_problem = ""
        _LOG.info("webhook rules are in force", extra=kv(webhooks=[rule.get("name") for rule in rules]))
        return True

    def _cluster_address(self, service: str) -> frozenset[str]:
        """The Service's cluster address, for schedulers that call it without cluster DNS."""
        try:
            raw = self._client.get(f"/api/v1/namespaces/{self._objects.namespace}/services/{service}")
        except NotFound:
            return frozenset()
        except ApiError as error:
            self._say(f"Service {service} cannot be read: {error}")
            raise
        address = text(raw, "spec", "clusterIP")
        try:
            return frozenset({str(ipaddress.ip_address(address))})
        except ValueError:
            return frozenset()  # headless

    def _say(self, problem: str) -> None:
        """Log a problem once, not in every turn."""
        if problem != self._last_problem:
            self._last_problem = problem
            _LOG.warning("upkeep waits", extra=kv(problem=problem))
