"""The kubelet's messages: device plugin ``v1beta1`` and pod-resources ``v1``, only the fields that are used.

The protobuf codec is written by hand instead of generated: the messages are tiny, and generated code would bind grpcio
and protobuf to the generator's version for a dozen fields. The format is protobuf's wire encoding
(https://protobuf.dev/programming-guides/encoding/). Unknown fields are skipped, as the format demands; tests compare
with bytes made by the kubelet's own Go packages. Pure: bytes in, values out and back.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

DEVICE_PLUGIN_VERSION: Final = "v1beta1"
HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
EMPTY: Final = b""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class Malformed(ValueError):
    """The bytes are not the message they should be."""


# -- messages -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Device:
    """One device id as the kubelet sees it. ``numa`` None = no topology."""

    id: str
    healthy: bool
    numa: int | None = None


@dataclass(frozen=True, slots=True)
class PluginOptions:
    """What the plugin wants to be called for."""

    pre_start_required: bool = False
    preferred_allocation: bool = False


@dataclass(frozen=True, slots=True)
class Registration:
    """A plugin introducing itself; ``endpoint`` is the name of its socket in the device plugin directory."""

    endpoint: str
    resource: str
    options: PluginOptions
    version: str = DEVICE_PLUGIN_VERSION


@dataclass(frozen=True, slots=True)
class PreferenceRequest:
    """For one container: choose ``size`` of ``available``, ``must_include`` among them."""

    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """The ids of one resource that one container holds."""

    namespace: str
    pod: str
    container: str
    resource: str
    ids: tuple[str, ...]


# -- device plugin --------------------------------------------------------------------------------------------


def encode_registration(registration: Registration) -> bytes:
    """``RegisterRequest``."""
    return (
        _text(1, registration.version)
        + _text(2, registration.endpoint)
        + _text(3, registration.resource)
        + _message(4, encode_options(registration.options))
    )


def decode_registration(data: bytes) -> Registration:
    """``RegisterRequest``, as a kubelet reads it."""
    fields = _Fields(data)
    options = fields.messages(4)
    return Registration(
        fields.text(2), fields.text(3), decode_options(options[-1]) if options else PluginOptions(), fields.text(1)
    )


def encode_options(options: PluginOptions) -> bytes:
    """``DevicePluginOptions``."""
    return _number(1, int(options.pre_start_required)) + _number(2, int(options.preferred_allocation))


def decode_options(data: bytes) -> PluginOptions:
    """``DevicePluginOptions``, as a kubelet reads it."""
    fields = _Fields(data)
    return PluginOptions(bool(fields.number(1)), bool(fields.number(2)))


def encode_devices(devices: Iterable[Device]) -> bytes:
    """``ListAndWatchResponse``: the full list, every time."""
    return b"".join(_message(1, _device(device)) for device in devices)


def decode_devices(data: bytes) -> tuple[Device, ...]:
    """``ListAndWatchResponse``, as a kubelet reads it: whatever is not "Healthy" is unhealthy."""
    devices = []
    for message in _Fields(data).messages(1):
        fields = _Fields(message)
        nodes = [_Fields(node) for topology in fields.messages(3) for node in _Fields(topology).messages(1)]
        devices.append(Device(fields.text(1), fields.text(2) == HEALTHY, nodes[0].number(1) if nodes else None))
    return tuple(devices)


def decode_allocate_request(data: bytes) -> tuple[tuple[str, ...], ...]:
    """``AllocateRequest``: the ids of each container."""
    return tuple(_Fields(container).texts(1) for container in _Fields(data).messages(1))


def encode_allocate_request(containers: Iterable[Sequence[str]]) -> bytes:
    """``AllocateRequest``, as a kubelet sends it."""
    return b"".join(_message(1, b"".join(_text(1, name) for name in ids)) for ids in containers)


def encode_allocate_response(containers: Iterable[Mapping[str, str]]) -> bytes:
    """``AllocateResponse`` with the environment variables of each container."""
    return b"".join(_message(1, b"".join(_entry(1, *item) for item in sorted(envs.items()))) for envs in containers)


def decode_allocate_response(data: bytes) -> tuple[dict[str, str], ...]:
    """``AllocateResponse``, as a kubelet reads it: the environment of each container."""
    return tuple(
        {entry.text(1): entry.text(2) for entry in map(_Fields, _Fields(container).messages(1))}
        for container in _Fields(data).messages(1)
    )


def decode_preferred_request(data: bytes) -> tuple[PreferenceRequest, ...]:
    """``PreferredAllocationRequest``."""
    containers = map(_Fields, _Fields(data).messages(1))
    return tuple(PreferenceRequest(fields.texts(1), fields.texts(2), fields.number(3)) for fields in containers)


def encode_preferred_request(containers: Iterable[PreferenceRequest]) -> bytes:
    """``PreferredAllocationRequest``, as a kubelet sends it."""
    return b"".join(
        _message(
            1,
            b"".join(_text(1, name) for name in request.available)
            + b"".join(_text(2, name) for name in request.must_include)
            + _number(3, request.size),
        )
        for request in containers
    )


def encode_preferred_response(containers: Iterable[Sequence[str]]) -> bytes:
    """``PreferredAllocationResponse``."""
    return encode_allocate_request(containers)  # the same shape: a list of lists of ids


def decode_preferred_response(data: bytes) -> tuple[tuple[str, ...], ...]:
    """``PreferredAllocationResponse``, as a kubelet reads it."""
    return decode_allocate_request(data)


# -- pod resources --------------------------------------------------------------------------------------------


def decode_pod_resources(data: bytes) -> tuple[ContainerDevices, ...]:
    """``ListPodResourcesResponse``: one entry per container and resource; the kubelet sends one per id."""
    held: dict[tuple[str, str, str, str], list[str]] = {}
    for pod in map(_Fields, _Fields(data).messages(1)):
        for container in map(_Fields, pod.messages(3)):
            for devices in map(_Fields, container.messages(2)):
                key = (pod.text(2), pod.text(1), container.text(1), devices.text(1))
                held.setdefault(key, []).extend(devices.texts(2))
    return tuple(ContainerDevices(*key, tuple(ids)) for key, ids in held.items())


def encode_pod_resources(entries: Iterable[ContainerDevices]) -> bytes:
    """``ListPodResourcesResponse``, as a kubelet sends it: one entry per id."""
    encoded = b""
    for entry in entries:
        devices = b"".join(_message(2, _text(1, entry.resource) + _text(2, name)) for name in entry.ids)
        container = _text(1, entry.container) + devices
        encoded += _message(1, _text(1, entry.pod) + _text(2, entry.namespace) + _message(3, container))
    return encoded


def decode_allocatable(data: bytes, resource: str) -> tuple[str, ...]:
    """``AllocatableResourcesResponse``: the ids of ``resource`` that the kubelet counts as healthy."""
    return tuple(
        name
        for devices in map(_Fields, _Fields(data).messages(1))
        if devices.text(1) == resource
        for name in devices.texts(2)
    )


def encode_allocatable(resource: str, ids: Iterable[str]) -> bytes:
    """``AllocatableResourcesResponse``, as a kubelet sends it."""
    return b"".join(_message(1, _text(1, resource) + _text(2, name)) for name in ids)


# -- the kubelet's checkpoint -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """The ids of one container in the kubelet's own file: the only local place with the pod's uid."""

    pod_uid: str
    container: str
    ids: tuple[str, ...]


def decode_checkpoint(data: bytes, resource: str) -> tuple[CheckpointEntry, ...]:
    """``kubelet_internal_checkpoint``: internal to the kubelet and without a version, so anything odd is an error.

    Raises:
        Malformed: not the form of Kubernetes 1.20 to 1.36.
    """
    try:
        entries = json.loads(data)["Data"]["PodDeviceEntries"] or []
        return tuple(
            CheckpointEntry(
                str(entry["PodUID"]),
                str(entry["ContainerName"]),
                tuple(str(name) for ids in (entry["DeviceIDs"] or {}).values() for name in ids or ()),
            )
            for entry in entries
            if entry["ResourceName"] == resource
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed(f"not a device manager checkpoint: {error!r}") from error


# -- the encoding ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=16384)  # twice the ids that a node may have; a whole list of 4,096 then takes milliseconds
def _device(device: Device) -> bytes:
    encoded = _text(1, device.id) + _text(2, HEALTHY if device.healthy else UNHEALTHY)
    if device.numa is None:
        return encoded
    return encoded + _message(3, _message(1, _number(1, device.numa)))


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF  # negative int32 and int64 travel as 64-bit two's complement
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _number(number: int, value: int) -> bytes:
    """Proto3 leaves a zero out."""
    return _varint(number << 3 | _VARINT) + _varint(value) if value else b""


def _message(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH) + _varint(len(body)) + body


def _text(number: int, value: str) -> bytes:
    """A string. Written even if empty: inside a repeated field that is an element."""
    return _message(number, value.encode())


def _entry(number: int, key: str, value: str) -> bytes:
    return _message(number, _text(1, key) + _text(2, value))


class _Fields:
    """The fields of one message by number, in the order they came."""

    def __init__(self, data: bytes) -> None:
        self._values: dict[int, list[int | bytes]] = {}
        for number, value in _read_fields(data):
            self._values.setdefault(number, []).append(value)

    def messages(self, number: int) -> list[bytes]:
        return [value for value in self._values.get(number, ()) if isinstance(value, bytes)]

    def texts(self, number: int) -> tuple[str, ...]:
        try:
            return tuple(value.decode() for value in self.messages(number))
        except UnicodeDecodeError as error:
            raise Malformed(f"field {number} is not UTF-8") from error

    def text(self, number: int) -> str:
        """The last one given wins, absent is empty."""
        return (self.texts(number) or ("",))[-1]

    def number(self, number: int) -> int:
        numbers = [value for value in self._values.get(number, ()) if isinstance(value, int)]
        value = numbers[-1] if numbers else 0
        return value - 2**64 if value >= 2**63 else value


def _read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise Malformed("field number 0")
        if kind == _VARINT:
            value, position = _read_varint(data, position)
            yield number, value
            continue
        if kind == _LENGTH:
            length, position = _read_varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise Malformed(f"wire type {kind} in field {number}")
        end = position + length
        if end > len(data):
            raise Malformed(f"field {number} needs {length} bytes, {len(data) - position} are left")
        if kind == _LENGTH:
            yield number, data[position:end]
        position = end


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise Malformed("the message ends inside a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
    raise Malformed("a number longer than 64 bits")
