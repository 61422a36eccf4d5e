"""Who holds which block, from three witnesses: the kubelet's list, its checkpoint file and the API server's pods.

The list (pod-resources ``List``) names pods, not uids, and is empty for a moment while a kubelet starts. The checkpoint
names uids, but keeps entries of ended pods. The API server knows which pods have ended, but may be away. So:

* a block is held by whom the list says; where it says nothing, by whom the checkpoint says, if that pod lives;
* a block in use is free again only if the list does not show it *and* either its pod is known to have ended, or the
  checkpoint does not show it any more. An ``Allocate`` that nobody confirmed waits :data:`CONFIRM_WITHIN_S` first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nodeagent.wire import CheckpointEntry, ContainerDevices
from slackwater.ledger import Block, Holder
from slackwater.pod import PodView

CONFIRM_WITHIN_S: Final = 30.0
"""The kubelet lists a pod as soon as its Allocate has returned; one that failed after it never appears."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the witnesses say. None = could not be asked."""

    listing: Sequence[ContainerDevices] | None
    listed_at_s: float
    """Monotonic seconds, before the list was asked for."""
    checkpoint: Sequence[CheckpointEntry] | None
    pods: Sequence[PodView] | None
    """The pods of this node."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """For :meth:`slackwater.ledger.Ledger.settle`, and what contradicted itself."""

    holders: Mapping[str, Holder]
    gone: frozenset[str]
    doubts: tuple[str, ...] = ()


def settle(held: Mapping[str, Block], evidence: Evidence) -> Settlement | None:
    """Who holds what now; ``held`` are the blocks in use so far. None: no witness at all, nothing may change."""
    if evidence.listing is None and evidence.checkpoint is None:
        return None
    doubts: list[str] = []
    holders = _from_checkpoint(evidence)
    if evidence.listing is None:
        return Settlement(holders, frozenset())
    holders |= {
        name: holder
        for name, holder in _from_listing(evidence, doubts).items()
        if name not in held or (held[name].assigned_at_s or 0.0) <= evidence.listed_at_s
    }
    remembered = {name for entry in evidence.checkpoint or () for name in entry.ids}
    gone = {
        name
        for name, block in held.items()
        if name not in holders and _has_ended(block, evidence, remembered=name in remembered)
    }
    return Settlement(holders, frozenset(gone), tuple(doubts))


def _has_ended(block: Block, evidence: Evidence, *, remembered: bool) -> bool:
    if block.assigned_at_s is not None:
        return evidence.listed_at_s - block.assigned_at_s > CONFIRM_WITHIN_S and not _claimed(block.id, evidence)
    if block.holder is None:
        return False
    if evidence.pods is not None:
        return not any(_is(pod, block.holder) for pod in evidence.pods if not pod.is_finished)
    return evidence.checkpoint is not None and not remembered


def _claimed(block_id: str, evidence: Evidence) -> bool:
    """Whether the checkpoint gives the block to a pod that may still live."""
    if evidence.checkpoint is None:
        return False
    live = None if evidence.pods is None else {pod.uid for pod in evidence.pods if not pod.is_finished}
    return any(block_id in entry.ids and (live is None or entry.pod_uid in live) for entry in evidence.checkpoint)


def _is(pod: PodView, holder: Holder) -> bool:
    if holder.pod_uid is not None:
        return pod.uid == holder.pod_uid
    return (pod.namespace, pod.name) == (holder.namespace, holder.pod)


def _from_listing(evidence: Evidence, doubts: list[str]) -> dict[str, Holder]:
    uid_by_block = {name: entry.pod_uid for entry in evidence.checkpoint or () for name in entry.ids}
    pods = [pod for pod in evidence.pods or () if not pod.is_finished]
    holders: dict[str, Holder] = {}
    for entry in evidence.listing or ():
        namesakes = [pod.uid for pod in pods if (pod.namespace, pod.name) == (entry.namespace, entry.pod)]
        for name in entry.ids:
            # Two pods of one name follow each other (a StatefulSet): then only the checkpoint can tell which it is.
            uid = namesakes[0] if len(namesakes) == 1 else uid_by_block.get(name)
            holder = Holder(entry.namespace, entry.pod, entry.container, uid)
            other = holders.setdefault(name, holder)
            if other != holder:
                doubts.append(
                    f"block {name}: the kubelet's list gives it to both {other.namespace}/{other.pod} and "
                    f"{holder.namespace}/{holder.pod}"
                )
    return holders


def _from_checkpoint(evidence: Evidence) -> dict[str, Holder]:
    """Holders whose pods live. While nobody can say which do, only the lack of a list makes its entries count."""
    if evidence.pods is None and evidence.listing is not None:
        return {}
    pods = None if evidence.pods is None else {pod.uid: pod for pod in evidence.pods if not pod.is_finished}
    holders = {}
    for entry in evidence.checkpoint or ():
        pod = None if pods is None else pods.get(entry.pod_uid)
        if pods is not None and pod is None:
            continue
        for name in entry.ids:
            holders[name] = Holder(
                pod.namespace if pod else "", pod.name if pod else "", entry.container, entry.pod_uid
            )
    return holders
