"""The API server: raw JSON over the transport and the credentials of the ``kubernetes`` package.

The only module that imports ``kubernetes``, and of it only the configuration and the connection pool: its typed models
cost 10 × the time of plain JSON on a pod list and refuse objects that the server accepts.

Every call blocks; clients may be shared between threads (the pool is thread safe). Errors::

    ApiError                  status, reason, message
    ├── NotFound       404    ├── Conflict  409       ├── Gone             410
    ├── Forbidden  401/403    ├── Invalid   400/422   ├── TooManyRequests  429 (retry_after_s)
    └── ApiUnavailable        no answer, a broken one, or 5xx
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias
from urllib.parse import urlencode

import urllib3
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.config import (
    ConfigException,
    load_incluster_config,
    load_kube_config,
)

from slackwater import names
from slackwater.errors import SlackwaterError, Unavailable
from slackwater.timestamps import format_time

_TIMEOUT_S = 10.0
"""Of one ordinary call. Long enough for a busy API server, short enough that a loop notices."""
_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
Items: TypeAlias = list[dict[str, Any]]
Body: TypeAlias = Mapping[str, Any] | list[Any]

_MESSAGE_LIMIT = 512
"""Of a foreign error body: enough to read, too little to flood a log."""


class ApiError(SlackwaterError):
    """The API server refused a call."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class NotFound(ApiError):
    """No such object, or no such resource type on this server."""


class Conflict(ApiError):
    """The object changed meanwhile, or exists already, or a precondition does not hold."""


class Gone(ApiError):
    """A watch or list asks for a version that the server has forgotten: list anew."""


class Forbidden(ApiError):
    """Our account may not do this."""


class Invalid(ApiError):
    """The server will not take this object."""


class TooManyRequests(ApiError):
    """Refused for now: a PodDisruptionBudget, or a busy server. ``retry_after_s`` may be None."""

    def __init__(self, status: int, reason: str, message: str, retry_after_s: float | None) -> None:
        super().__init__(status, reason, message)
        self.retry_after_s = retry_after_s


class ApiUnavailable(ApiError, Unavailable):
    """No usable answer: the server is away, overloaded or restarting."""


_ERRORS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch: ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``, and the object."""

    type: str
    object: dict[str, Any]


class KubeClient:
    """REST calls on paths such as ``/api/v1/nodes/n1``; see :meth:`connect`."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        configuration.retries = urllib3.Retry(total=1, redirect=0, status=0)
        self._pool = ApiClient(configuration).rest_client.pool_manager

    @staticmethod
    def connect(kubeconfig: str | None = None, context: str | None = None) -> "KubeClient":
        """A client from the pod's service account, or from a kubeconfig file (``KUBECONFIG``, ``~/.kube/config``).

        Raises:
            Unavailable: neither is there; the message says what was tried.
        """
        configuration = Configuration()
        try:
            if kubeconfig is None and context is None:
                try:
                    load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
                    return KubeClient(configuration)
                except ConfigException:
                    pass  # not in a pod: a person's machine
            load_kube_config(config_file=kubeconfig, context=context, client_configuration=configuration)  # type: ignore[no-untyped-call]
        except (ConfigException, OSError) as error:
            raise Unavailable(
                f"no cluster to talk to: {error}; run in a pod with a service account, or set KUBECONFIG"
            ) from error
        return KubeClient(configuration)

    # -- objects ------------------------------------------------------------------------------------------

    def get(self, path: str) -> dict[str, Any]:
        """The object at ``path``."""
        return self._call("GET", path)

    def list(
        self, path: str, *, label_selector: str = "", field_selector: str = "", from_cache: bool = False
    ) -> tuple[Items, str]:
        """All objects below ``path`` and the resourceVersion of the list.

        Args:
            from_cache: let the server answer from its watch cache (``resourceVersion=0``): cheap, maybe a little old.
        """
        query = {"labelSelector": label_selector, "fieldSelector": field_selector}
        if from_cache:
            query["resourceVersion"] = "0"
        answer = self._call("GET", path, query=query)
        # Items of a list carry neither kind nor apiVersion; readers of single objects want both.
        kind, version = str(answer.get("kind", "")).removesuffix("List"), answer.get("apiVersion", "")
        items = [{"apiVersion": version, "kind": kind, **item} for item in answer.get("items") or []]
        return items, (answer.get("metadata") or {}).get("resourceVersion", "")

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST ``body`` to the collection (or subresource) at ``path``."""
        return self._call("POST", path, body=body)

    def replace(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """PUT ``body``; with a resourceVersion in it a stale one gives :class:`Conflict`."""
        return self._call("PUT", path, body=body)

    def patch(
        self,
        path: str,
        body: Body,
        *,
        kind: str = "merge",
        field_manager: str = names.FIELD_MANAGER,
        force: bool = False,
    ) -> dict[str, Any]:
        """PATCH. ``kind`` is ``merge``, ``json``, ``strategic`` or ``apply`` (server-side apply, may ``force``)."""
        query = {"fieldManager": field_manager}
        if force:
            query["force"] = "true"
        return self._call("PATCH", path, body=body, query=query, content_type=_PATCH_TYPES[kind])

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """DELETE, with ``DeleteOptions`` as ``body`` where given."""
        return self._call("DELETE", path, body=body)

    def evict(self, namespace: str, name: str, uid: str, grace_seconds: int | None = None) -> None:
        """Ask for the eviction of one pod (Eviction API v1), only if it still has this uid.

        Raises:
            TooManyRequests: a PodDisruptionBudget refuses it now.
            NotFound, Conflict: it is gone, or another pod has its name.
        """
        options: dict[str, Any] = {"preconditions": {"uid": uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        self.create(
            f"/api/v1/namespaces/{namespace}/pods/{name}/eviction",
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": namespace},
                "deleteOptions": options,
            },
        )

    def watch(
        self,
        path: str,
        resource_version: str,
        *,
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: int = 240,
    ) -> Iterator[WatchEvent]:
        """Events below ``path`` after ``resource_version``, until the server closes the watch.

        Raises:
            Gone: the version is too old; list anew.
        """
        query = {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_s),
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        response = self._send("GET", path, query=query, timeout=urllib3.Timeout(connect=5, read=timeout_s + 30))
        try:
            for line in _lines(response):
                event = json.loads(line)
                if event.get("type") == "ERROR":
                    raise _error_of(event.get("object") or {}, 500, {})
                yield WatchEvent(event["type"], event["object"])
        except (urllib3.exceptions.HTTPError, json.JSONDecodeError, OSError) as error:
            raise ApiUnavailable(0, "WatchBroken", str(error)[:_MESSAGE_LIMIT]) from error
        finally:
            response.close()

    # -- transport ----------------------------------------------------------------------------------------

    def _call(
        self,
        method: str,
        path: str,
        *,
        body: Body | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        response = self._send(method, path, body=body, query=query, content_type=content_type)
        try:
            answer = json.loads(response.data)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise ApiUnavailable(response.status, "BadAnswer", str(error)[:_MESSAGE_LIMIT]) from error
        if not isinstance(answer, dict):
            raise ApiUnavailable(response.status, "BadAnswer", "the answer is not a JSON object")
        return answer

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Body | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout: urllib3.Timeout | None = None,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json", "User-Agent": "slackwater"}
        token = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            headers["Authorization"] = token
        if body is not None:
            headers["Content-Type"] = content_type
        filled = {key: value for key, value in (query or {}).items() if value}
        url = f"{self._configuration.host}{path}" + (f"?{urlencode(filled)}" if filled else "")
        try:
            response: urllib3.BaseHTTPResponse = self._pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body),
                headers=headers,
                timeout=timeout or urllib3.Timeout(total=_TIMEOUT_S),
                preload_content=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise ApiUnavailable(0, "NoAnswer", str(error)[:_MESSAGE_LIMIT]) from error
        if response.status >= 400:
            try:
                raw = json.loads(response.data)
            except (urllib3.exceptions.HTTPError, ValueError):
                raw = {}
            # Only a Status speaks to us; any other body may hold what must not reach a log.
            known = raw if isinstance(raw, dict) and raw.get("kind") == "Status" else {}
            raise _error_of(known, response.status, response.headers)
        return response


def _error_of(status: Mapping[str, Any], http_status: int, headers: Mapping[str, str]) -> ApiError:
    code = status.get("code") or http_status
    reason = str(status.get("reason") or "Error")
    message = str(status.get("message") or "the server gave no reason")[:_MESSAGE_LIMIT]
    if code == 429:
        seconds = (status.get("details") or {}).get("retryAfterSeconds") or headers.get("Retry-After")
        try:
            return TooManyRequests(code, reason, message, None if seconds is None else float(seconds))
        except ValueError:
            return TooManyRequests(code, reason, message, None)
    if code >= 500:
        return ApiUnavailable(code, reason, message)
    return _ERRORS.get(code, ApiError)(code, reason, message)


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    for chunk in response.stream(65536, decode_content=True):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line.strip())
    if rest.strip():
        yield rest


# -- events -----------------------------------------------------------------------------------------------


def emit_event(
    client: KubeClient,
    regarding: Mapping[str, Any],
    *,
    reason: str,
    message: str,
    component: str,
    kind: str = "Normal",
    host: str = "",
    now: datetime | None = None,
) -> None:
    """Write one core/v1 Event about the object ``regarding`` (raw, with kind, apiVersion and metadata).

    ``kind`` is ``Normal`` or ``Warning``. Events about cluster-scoped objects go to namespace ``default``, as the
    kubelet's do.
    """
    metadata = regarding.get("metadata") or {}
    namespace = metadata.get("namespace") or "default"
    stamp = format_time(now or datetime.now(UTC))
    client.create(
        f"/api/v1/namespaces/{namespace}/events",
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata.get('name', 'object')}.", "namespace": namespace},
            "involvedObject": {
                "apiVersion": regarding.get("apiVersion", ""),
                "kind": regarding.get("kind", ""),
                "namespace": metadata.get("namespace", ""),
                "name": metadata.get("name", ""),
                "uid": metadata.get("uid", ""),
                "resourceVersion": metadata.get("resourceVersion", ""),
            },
            "reason": reason,
            "message": message[:1024],
            "type": kind,
            "source": {"component": component, "host": host},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        },
    )
