"""The kubelet's side: registering with it, its list of who holds what, its checkpoint file. Local sockets and files."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import grpc

from nodeagent import wire
from slackwater.errors import Unavailable

_T = TypeVar("_T")
_REGISTER_TIMEOUT_S: Final = 15.0
"""The kubelet dials back, for up to 10 s, before it answers."""
_LIST_TIMEOUT_S: Final = 5.0
_OPTIONS: Final = [
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),  # 4,096 ids are about 350 kB; the default is 4 MiB
]
_LIST: Final = "/v1.PodResourcesLister/List"
_ALLOCATABLE: Final = "/v1.PodResourcesLister/GetAllocatableResources"


async def register(socket: Path, registration: wire.Registration) -> None:
    """Introduce the plugin. It must be serving already.

    Raises:
        Unavailable: no kubelet answers, or it refuses; the message is its own.
    """
    await _call(socket, "/v1beta1.Registration/Register", wire.encode_registration(registration), _REGISTER_TIMEOUT_S)


async def list_pod_resources(socket: Path, resource: str) -> list[wire.ContainerDevices]:
    """Which containers hold ids of ``resource``.

    Also makes the kubelet give up the ids of ended pods.

    Raises:
        Unavailable: it cannot be had.
    """
    listing = _decoded(wire.decode_pod_resources, await _call(socket, _LIST, wire.EMPTY, _LIST_TIMEOUT_S))
    return [entry for entry in listing if entry.resource == resource]


async def list_allocatable(socket: Path, resource: str) -> tuple[str, ...]:
    """The ids that the kubelet believes healthy.

    Raises:
        Unavailable: it cannot be had.
    """
    answer = await _call(socket, _ALLOCATABLE, wire.EMPTY, _LIST_TIMEOUT_S)
    return _decoded(lambda data: wire.decode_allocatable(data, resource), answer)


def read_checkpoint(file: Path, resource: str) -> tuple[wire.CheckpointEntry, ...]:
    """The kubelet's checkpoint; empty where there is none yet.

    Raises:
        Unavailable: it cannot be read or has another form.
    """
    try:
        return _decoded(lambda data: wire.decode_checkpoint(data, resource), file.read_bytes())
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise Unavailable(f"{file} cannot be read: {error}") from error


async def _call(socket: Path, method: str, request: bytes, timeout_s: float) -> bytes:
    async with grpc.aio.insecure_channel(f"unix://{socket}", options=_OPTIONS) as channel:
        try:
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
            answer = await call(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise Unavailable(f"{method} on {socket}: {error.code().name}: {error.details()}") from error
    return bytes(answer)


def _decoded(decode: Callable[[bytes], _T], data: bytes) -> _T:
    try:
        return decode(data)
    except wire.Malformed as error:
        raise Unavailable(f"the kubelet's answer makes no sense: {error}") from error
