"""The hand-written protobuf codec against bytes made by the kubelet's own Go packages.

The hex strings are ``proto.MarshalOptions{Deterministic: true}`` of the messages of ``k8s.io/kubelet`` v0.36.3
(``pkg/apis/deviceplugin/v1beta1`` and ``pkg/apis/podresources/v1``) with the values that stand beside them here.
"""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent import wire

RESOURCE = "slackwater.io/colocation-memory"

REGISTRATION = bytes.fromhex(
    "0a0776316265746131120f736c61636b77617465722e736f636b1a1f736c61636b77617465722e696f2f636f6c6f636174696f6e2d6d656d6f72"
    "7922021001"
)
DEVICES = bytes.fromhex(
    "0a1a0a0b636d2d6e302d303030313712074865616c7468791a020a000a1f0a0b636d2d6e312d30303330301209556e6865616c7468791a050a03"
    "08ac020a120a056f6c642d371209556e6865616c746879"
)
ALLOCATE_REQUEST = bytes.fromhex("0a1a0a0b636d2d6e302d30303030310a0b636d2d6e302d30303030320a00")
ALLOCATE_RESPONSE = bytes.fromhex(
    "0a380a160a11534c41434b57415445525f424c4f434b531201320a1e0a10534c41434b57415445525f4259544553120a313037333734313832340a"
    "00"
)
PREFERRED_REQUEST = bytes.fromhex("0a0e0a01610a01620a01631201621802")
PREFERRED_RESPONSE = bytes.fromhex("0a060a01620a01610a00")
POD_RESOURCES = bytes.fromhex(
    "0aac010a03626531120764656661756c741a9b010a0361707012320a1f736c61636b77617465722e696f2f636f6c6f636174696f6e2d6d656d6f"
    "7279120b636d2d6e302d30303030311a020a0012320a1f736c61636b77617465722e696f2f636f6c6f636174696f6e2d6d656d6f7279120b636d"
    "2d6e302d30303030321a020a0012150a0f6578616d706c652e636f6d2f677075120267301a040102ac02220f0a066d656d6f7279108080808080"
    "200a150a066f6e6c696e65120473686f701a050a03776562"
)
ALLOCATABLE = bytes.fromhex(
    "0a320a1f736c61636b77617465722e696f2f636f6c6f636174696f6e2d6d656d6f7279120b636d2d6e302d30303030311a020a000a320a1f736c"
    "61636b77617465722e696f2f636f6c6f636174696f6e2d6d656d6f7279120b636d2d6e302d30303030331a020a0012020001"
)


def test_registration() -> None:
    registration = wire.Registration("slackwater.sock", RESOURCE, wire.PluginOptions(preferred_allocation=True))
    assert wire.encode_registration(registration) == REGISTRATION
    assert wire.decode_registration(REGISTRATION) == registration


def test_options_leave_false_out() -> None:
    assert wire.encode_options(wire.PluginOptions(preferred_allocation=True)) == b"\x10\x01"
    assert wire.encode_options(wire.PluginOptions()) == b""


def test_device_list_with_numa_node_zero_and_without_topology() -> None:
    devices = (
        wire.Device("cm-n0-00017", healthy=True, numa=0),
        wire.Device("cm-n1-00300", healthy=False, numa=300),
        wire.Device("old-7", healthy=False),
    )
    assert wire.encode_devices(devices) == DEVICES
    assert wire.decode_devices(DEVICES) == devices


def test_allocation() -> None:
    ids = (("cm-n0-00001", "cm-n0-00002"), ())
    assert wire.decode_allocate_request(ALLOCATE_REQUEST) == ids
    assert wire.encode_allocate_request(ids) == ALLOCATE_REQUEST
    environment: tuple[dict[str, str], ...] = ({"SLACKWATER_BLOCKS": "2", "SLACKWATER_BYTES": "1073741824"}, {})
    assert wire.encode_allocate_response(environment) == ALLOCATE_RESPONSE
    assert wire.decode_allocate_response(ALLOCATE_RESPONSE) == environment


def test_preferred_allocation() -> None:
    request = wire.PreferenceRequest(("a", "b", "c"), ("b",), 2)
    assert wire.decode_preferred_request(PREFERRED_REQUEST) == (request,)
    assert wire.encode_preferred_request([request]) == PREFERRED_REQUEST
    assert wire.encode_preferred_response([("b", "a"), ()]) == PREFERRED_RESPONSE


def test_pod_resources_skip_what_we_do_not_know_and_join_one_entry_per_id() -> None:
    assert wire.decode_pod_resources(POD_RESOURCES) == (
        wire.ContainerDevices("default", "be1", "app", RESOURCE, ("cm-n0-00001", "cm-n0-00002")),
        wire.ContainerDevices("default", "be1", "app", "example.com/gpu", ("g0",)),
    )


def test_allocatable_ids_of_our_resource() -> None:
    assert wire.decode_allocatable(ALLOCATABLE, RESOURCE) == ("cm-n0-00001", "cm-n0-00003")
    assert wire.decode_allocatable(ALLOCATABLE, "example.com/gpu") == ()


def test_4096_ids_stay_far_below_the_kubelets_4_mib() -> None:
    message = wire.encode_devices(wire.Device(f"cm-n0-{number:05}", healthy=True, numa=0) for number in range(4096))
    assert len(message) < 128 * 1024


@given(
    st.lists(
        st.builds(wire.Device, id=st.text(), healthy=st.booleans(), numa=st.none() | st.integers(-(2**63), 2**63 - 1))
    )
)
def test_any_device_list_survives_the_round_trip(devices: list[wire.Device]) -> None:
    assert wire.decode_devices(wire.encode_devices(devices)) == tuple(devices)


@given(st.binary(max_size=200))
def test_garbage_is_a_message_or_malformed_and_nothing_else(data: bytes) -> None:
    for decode in (wire.decode_devices, wire.decode_pod_resources, wire.decode_registration):
        with suppress(wire.Malformed):
            decode(data)


@pytest.mark.parametrize("cut", range(1, len(POD_RESOURCES), 7))
def test_a_cut_message_is_refused_or_shorter(cut: int) -> None:
    with suppress(wire.Malformed):
        assert len(wire.decode_pod_resources(POD_RESOURCES[:cut])) <= 2


def test_the_kubelets_checkpoint() -> None:
    data = json.dumps(
        {
            "Data": {
                "PodDeviceEntries": [
                    {
                        "PodUID": "u1",
                        "ContainerName": "app",
                        "ResourceName": RESOURCE,
                        "DeviceIDs": {"0": ["cm-n0-00001"], "1": ["cm-n1-00004"]},
                        "AllocResp": "",
                    },
                    {"PodUID": "u2", "ContainerName": "x", "ResourceName": "example.com/gpu", "DeviceIDs": None},
                ],
                "RegisteredDevices": {RESOURCE: ["cm-n0-00001"]},
            },
            "Checksum": 4023343535,
        }
    ).encode()
    assert wire.decode_checkpoint(data, RESOURCE) == (
        wire.CheckpointEntry("u1", "app", ("cm-n0-00001", "cm-n1-00004")),
    )


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"Data": {"PodDeviceEntries": [1]}}', b"\xff"])
def test_a_checkpoint_of_another_form_is_malformed(data: bytes) -> None:
    with pytest.raises(wire.Malformed):
        wire.decode_checkpoint(data, RESOURCE)
