"""The device plugin over real sockets: what the kubelet sees, through restarts of either side.

Left out: the kubelet's own device manager, whose behaviour the fake one here only repeats.
"""

import asyncio
import os
import re
import signal
import time
from pathlib import Path

import grpc
from component.nodeagent.api_server import NODES, PODS
from component.nodeagent.conftest import NodeRig, colocated, eventually
from component.nodeagent.fake_kubelet import RESOURCE, FakeKubelet
from component.nodeagent.host_files import GIB, MIB
from prometheus_client import CollectorRegistry

from nodeagent import wire
from nodeagent.metrics import Metrics
from nodeagent.plugin import Books, DevicePlugin
from slackwater.ledger import Ledger, block_ids

IDS = [f"cm-n0-{number:05}" for number in range(16)]


def test_the_whole_list_is_registered_and_only_slack_is_healthy(rig: NodeRig) -> None:
    rig.offering_agent()
    plugin = rig.kubelet.plugins[-1]
    assert plugin.registration == wire.Registration("slackwater.sock", RESOURCE, plugin.options)
    assert plugin.options == wire.PluginOptions(pre_start_required=False, preferred_allocation=True)
    assert sorted(rig.kubelet.devices) == IDS
    # 8 GiB − 10 % margin − 1 GiB in use = 6.2 GiB = 12 blocks; the line, 95 % − one block, leaves more.
    rig.kubelet.wait_for(lambda kubelet: kubelet.allocatable == 12, "12 healthy blocks")
    assert [device.id for device in rig.kubelet.devices.values() if device.healthy] == IDS[:12]
    eventually(lambda: rig.unready() == "", "readiness")


def test_a_container_gets_blocks_and_is_told_so(rig: NodeRig) -> None:
    rig.add_pod(colocated("be1", 2), used=100 * MIB)
    rig.offering_agent()
    environment = rig.kubelet.allocate("default", "be1", "uid-default-be1", 2)
    assert environment == {"SLACKWATER_BLOCKS": "2", "SLACKWATER_BYTES": str(GIB)}
    assert all(re.fullmatch("[A-Z_]+", name) for name in environment)
    eventually(lambda: rig.metric('slackwater_blocks{state="held"}') == 2, "two held blocks")


def test_blocks_in_use_stay_healthy_and_free_ones_go_when_online_use_grows(rig: NodeRig) -> None:
    rig.add_pod(colocated("be1", 4), used=100 * MIB)
    rig.offering_agent()
    rig.kubelet.allocate("default", "be1", "uid-default-be1", 4)
    rig.files.machine(8 * GIB, 7 * GIB)
    rig.kubelet.wait_for(lambda kubelet: kubelet.allocatable == 4, "a shrunk offer", timeout_s=3)
    healthy = {device.id for device in rig.kubelet.devices.values() if device.healthy}
    assert healthy == rig.kubelet.used_ids()
    assert sorted(rig.kubelet.devices) == IDS


def test_a_pod_that_fills_its_own_blocks_changes_nothing(rig: NodeRig) -> None:
    rig.add_pod(colocated("be1", 4), used=0)
    rig.offering_agent()
    rig.kubelet.wait_for(lambda kubelet: kubelet.allocatable == 12, "12 healthy blocks")
    updates = len(rig.kubelet.plugins[-1].lists)
    rig.files.pod("uid-default-be1", used=2 * GIB, cache=GIB)
    rig.files.machine(8 * GIB, 3 * GIB, cache=GIB)
    eventually(lambda: rig.metric('slackwater_node_memory_bytes{term="used"}') == 3 * GIB, "the new reading")
    assert (rig.kubelet.allocatable, len(rig.kubelet.plugins[-1].lists)) == (12, updates)


def test_a_restarted_kubelet_is_registered_with_again_within_5_s(rig: NodeRig) -> None:
    rig.offering_agent()
    before = dict(rig.kubelet.devices)
    rig.kubelet.restart()
    began_s = time.monotonic()
    rig.kubelet.wait_for(lambda kubelet: kubelet.allocatable > 0, "another registration", timeout_s=5)
    assert time.monotonic() - began_s < 5
    assert rig.kubelet.devices == before


def test_a_broken_stream_is_noticed_although_both_sides_live(rig: NodeRig) -> None:
    rig.offering_agent()
    rig.kubelet.break_stream()
    rig.kubelet.wait_for(lambda kubelet: len(kubelet.plugins) == 2 and kubelet.allocatable > 0, "another registration")
    assert rig.kubelet.plugins[0].ended, "the old stream must end before the new registration"


def test_our_removed_socket_is_bound_again(rig: NodeRig) -> None:
    rig.offering_agent()
    (rig.kubelet.plugin_dir / "slackwater.sock").unlink()
    rig.kubelet.wait_for(lambda kubelet: len(kubelet.plugins) == 2 and kubelet.allocatable > 0, "another registration")
    rig.add_pod(colocated("be1", 1), used=0)
    rig.kubelet.allocate("default", "be1", "uid-default-be1", 1)


def test_a_killed_agent_comes_back_with_the_same_ids_and_gives_nothing_out_twice(rig: NodeRig) -> None:
    for name in ("a", "b", "c"):
        rig.add_pod(colocated(name, 2), used=MIB)
    agent = rig.offering_agent()
    for name in ("a", "b", "c"):
        rig.kubelet.allocate("default", name, f"uid-default-{name}", 2)
    rig.kubelet.wait_for(lambda kubelet: kubelet.allocatable == 12, "12 healthy blocks")
    before = dict(rig.kubelet.devices)
    assert rig.stop_agent(agent, signal.SIGKILL) == -signal.SIGKILL
    rig.kubelet.wait_for(lambda kubelet: kubelet.allocatable == 0, "the end of the stream")
    rig.start_agent()
    rig.kubelet.wait_for(lambda kubelet: kubelet.allocatable == 12, "the same offer")
    assert rig.kubelet.devices == before
    for devices in rig.kubelet.plugins[-1].lists:
        healthy = {device.id for device in devices if device.healthy}
        assert rig.kubelet.used_ids() <= healthy, "blocks in use are known before anything is shown"
        assert len(healthy) <= 12
    rig.add_pod(colocated("d", 6), used=MIB)
    rig.kubelet.allocate("default", "d", "uid-default-d", 6)
    assert len(rig.kubelet.used_ids()) == sum(map(len, rig.kubelet.holdings.values())) == 12


def test_an_agent_that_starts_with_its_kubelet_believes_the_checkpoint(rig: NodeRig) -> None:
    rig.add_pod(colocated("a", 3), used=MIB)
    agent = rig.offering_agent()
    rig.kubelet.allocate("default", "a", "uid-default-a", 3)
    rig.stop_agent(agent, signal.SIGKILL)
    rig.kubelet.forgetful = True
    rig.kubelet.restart()
    rig.start_agent()
    rig.kubelet.wait_for(lambda kubelet: kubelet.allocatable == 12, "an offer")
    eventually(lambda: rig.metric('slackwater_blocks{state="held"}') == 3, "three held blocks")


def test_the_blocks_of_an_ended_pod_are_free_again(rig: NodeRig) -> None:
    rig.add_pod(colocated("a", 3), used=MIB)
    rig.offering_agent()
    rig.kubelet.allocate("default", "a", "uid-default-a", 3)
    asked = rig.kubelet.lists_given
    rig.kubelet.wait_for(lambda kubelet: kubelet.lists_given > asked + 1, "the agent has asked who holds them")
    assert rig.metric('slackwater_blocks{state="held"}') == 3
    rig.kubelet.end("default", "a")
    rig.api.delete(PODS, "default/a")
    eventually(lambda: rig.metric('slackwater_blocks{state="held"}') == 0, "no held blocks")


def test_a_cordoned_node_offers_nothing_and_comes_back_at_once(rig: NodeRig) -> None:
    rig.offering_agent()
    node = rig.api.get(NODES, "node-1")
    assert node is not None
    rig.api.put(NODES, {**node, "spec": {"unschedulable": True}})
    rig.kubelet.wait_for(lambda kubelet: kubelet.allocatable == 0, "no offer", timeout_s=3)
    assert rig.kubelet.capacity == 16
    rig.api.put(NODES, {**node, "spec": {}})
    rig.kubelet.wait_for(lambda kubelet: kubelet.allocatable == 12, "the offer", timeout_s=3)


def test_a_second_agent_on_one_node_steals_nothing(rig: NodeRig) -> None:
    rig.offering_agent()
    rig.start_agent("--metrics-port", "0")
    eventually(lambda: "is a second agent running" in rig.log, "a refusal")
    assert (len(rig.kubelet.plugins), rig.kubelet.allocatable) == (1, 12)


def test_the_kubelet_may_come_later_than_the_agent(rig: NodeRig) -> None:
    rig.kubelet.stop()
    for entry in (rig.kubelet.plugin_dir / "kubelet.sock", rig.kubelet.pod_resources_socket):
        entry.unlink(missing_ok=True)
    rig.start_agent()
    eventually(lambda: "the kubelet is down" in rig.unready(), "the reason in /readyz")
    rig.kubelet.start()
    rig.kubelet.wait_for(lambda kubelet: kubelet.allocatable > 0, "a registration", timeout_s=5)


def test_sigterm_ends_it_cleanly(rig: NodeRig) -> None:
    agent = rig.offering_agent()
    began_s = time.monotonic()
    assert rig.stop_agent(agent) == 0
    assert time.monotonic() - began_s < 5
    assert not (rig.kubelet.plugin_dir / "slackwater.sock").exists()
    assert "Traceback" not in rig.log


def test_unreadable_memory_keeps_the_last_offer_and_says_so(rig: NodeRig) -> None:
    rig.offering_agent()
    rig.kubelet.wait_for(lambda kubelet: kubelet.allocatable == 12, "12 healthy blocks")
    (rig.files.root / "proc/meminfo").write_text("MemTotal: lots\n")
    eventually(lambda: "cannot be read" in rig.unready(), "the reason in /readyz")
    assert rig.metric('slackwater_reading_failures_total{source="node"}') > 0
    assert rig.kubelet.allocatable == 12
    eventually(lambda: any(c["reason"] == "Unreadable" for c in rig.api.nodeslack()["conditions"]), "the condition")
    rig.files.machine(8 * GIB, 7 * GIB)
    rig.kubelet.wait_for(lambda kubelet: kubelet.allocatable < 12, "the new offer")


def _books(blocks: int) -> Books:
    return Books(Ledger.of(block_ids({0: blocks * 512 * MIB}, 512 * MIB)))


def _metrics() -> Metrics:
    return Metrics(CollectorRegistry())


def test_a_hundred_updates_without_a_stream_do_not_block_and_a_stream_starts_with_the_newest(
    tmp_path_factory: object, rig: NodeRig
) -> None:
    path = rig.directory / "p.sock"

    async def scenario() -> list[int]:
        books = _books(8)
        plugin = DevicePlugin(books, path, 512 * MIB, _metrics())
        await plugin.start()
        async with asyncio.timeout(5):
            for number in range(100):
                await books.replace(books.ledger.offer({0: number % 8}))
            seen = []
            async with grpc.aio.insecure_channel(f"unix://{path}") as channel:
                method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(
                    "/v1beta1.DevicePlugin/ListAndWatch"
                )
                stream = method(wire.EMPTY)
                async for message in stream:
                    seen.append(sum(device.healthy for device in wire.decode_devices(bytes(message))))
                    if len(seen) == 2:
                        break
                    await books.replace(books.ledger.offer({0: 5}))
                    await books.replace(books.ledger.offer({0: 5}))
                stream.cancel()
            while plugin.open_streams:
                await asyncio.sleep(0.01)
        await plugin.stop()
        return seen

    assert asyncio.run(scenario()) == [99 % 8, 5]


def test_4096_ids_fit_one_message_that_the_kubelet_takes(rig: NodeRig) -> None:
    path = rig.directory / "p.sock"

    async def scenario() -> bytes:
        books = _books(4096)
        plugin = DevicePlugin(books, path, 512 * MIB, _metrics())
        await plugin.start()
        await books.replace(books.ledger.offer({0: 3000}))
        async with grpc.aio.insecure_channel(f"unix://{path}") as channel:
            method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(
                "/v1beta1.DevicePlugin/ListAndWatch"
            )
            stream = method(wire.EMPTY)
            first = bytes(await anext(aiter(stream)))
            stream.cancel()
        await plugin.stop()
        return first

    message = asyncio.run(scenario())
    devices = wire.decode_devices(message)
    assert (len(devices), sum(device.healthy for device in devices)) == (4096, 3000)
    assert len(message) < 4 * MIB / 10  # gRPC's limit for a message is 4 MiB


def test_a_stale_socket_file_of_a_killed_agent_is_no_obstacle(rig: NodeRig, tmp_path: Path) -> None:
    stale = rig.kubelet.plugin_dir / "slackwater.sock"
    os.mknod(stale, 0o140600) if os.geteuid() == 0 else stale.touch()
    rig.offering_agent()
    assert isinstance(rig.kubelet, FakeKubelet)
