"""The agent's life: several loops around the same observations, joined here and nowhere else.

=========  ==============================  ====================================================================
loop       how often                       one turn
=========  ==============================  ====================================================================
measure    refresh interval, on a change   survey the node → the offer → the ledger → NodeSlack's text
guard      guard interval (0.5 s)          read the node's use; over the threshold: a round of evictions
limits     1 s                             compare colocated pods' limits with their blocks, repair
settle     refresh interval, on Allocate   the kubelet's list → who holds which block
publish    on news, else 120 s             write NodeSlack
register   1 s                             keep the device plugin registered (:mod:`nodeagent.register`)
=========  ==============================  ====================================================================

All state is owned by the event loop; turns that block run in threads on values and give values back. In mode observe
only measure, guard (without acting) and publish run: nothing is registered, written or evicted.
"""

import asyncio
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from nodeagent import act, kubelet
from nodeagent.decide import evict
from nodeagent.decide.offer import Offer, next_offer
from nodeagent.decide.publish import is_news
from nodeagent.decide.settle import Evidence, settle
from nodeagent.evictor import Evictor
from nodeagent.limiter import Limiter
from nodeagent.metrics import Metrics
from nodeagent.observe import ApiObserver, PolicyState
from nodeagent.plugin import Books
from nodeagent.register import Registrar
from nodeagent.settings import Settings
from nodeagent.survey import Survey, Surveyor
from slackwater import names
from slackwater.adapters.cgroups import CgroupTree
from slackwater.adapters.kube import ApiError, KubeClient
from slackwater.adapters.logs import kv
from slackwater.errors import InputError, Unavailable
from slackwater.headroom import Headroom
from slackwater.ledger import Ledger, block_ids, check_invariants
from slackwater.nodeslack import Avoidance, Condition, read_nodeslack, render_status
from slackwater.objects import mapping, text

_LOG = logging.getLogger("slackwater.nodeagent")

_LIMITS_EVERY_S: Final = 1.0
_SETTLE_EVERY_S: Final = 1.0
"""How soon after an Allocate the kubelet is asked for whom; without one it is asked each refresh."""
_HURRY_SPACING_S: Final = 0.5
"""Least time between two surveys, or two writes, however often objects change."""
_COMPARE_AFTER_S: Final = 3.0
"""A kubelet has read our list long before; then it must count our blocks."""
_PUBLISH_PAUSES_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
_PUBLISH_JITTER: Final = 0.2
_WATCHDOG_S: Final = 120.0
"""Longer than any call can take: an API server that hangs is no reason to be restarted."""


class Agent:
    """One node's agent. :meth:`run` it once."""

    def __init__(self, settings: Settings, client: KubeClient, tree: CgroupTree, metrics: Metrics) -> None:
        self._settings = settings
        self._tree = tree
        self._metrics = metrics
        self._api = ApiObserver(client, settings, self._wake)
        self._surveyor = Surveyor(settings, self._api, tree, metrics)
        self._speaker = act.Speaker(client, settings.node_name, metrics)
        self._evictor = Evictor(client, settings, self._surveyor, self._api, self._speaker, metrics)
        self._limiter = Limiter(settings, self._api, tree, self._speaker, metrics)
        self._nodeslack = act.NodeSlackWriter(client, settings.node_name)
        self._books = Books(Ledger())
        self._registrar = Registrar(settings, self._books, metrics)

        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._publish_now = asyncio.Event()
        self._recovered = asyncio.Event()
        self._round = asyncio.Lock()

        self._survey: Survey | None = None
        self._offer = Offer()
        self._rounds = evict.Rounds.none()
        self._over_since_s: float | None = None
        self._avoiding: tuple[Avoidance, ...] = ()
        self._status: dict[str, Any] | None = None
        self._published: Mapping[str, Any] | None = None
        self._rejected_version: str | None = None
        self._settled_at_s = float("-inf")
        self._settled_allocations = 0
        self._guard_at_s = time.monotonic()
        self._problems: dict[str, str] = {"measure": "nothing has been measured yet"}
        metrics.reading_age.set_function(self._reading_age_s)

    # -- life -----------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Run every loop until ``stop`` is set."""
        self._stop = stop
        self._event_loop = asyncio.get_running_loop()
        stop_reflectors = threading.Event()
        self._api.start(stop_reflectors)
        settings = self._settings
        try:
            await self._lay_out()
            async with asyncio.TaskGroup() as loops:
                loops.create_task(self._every("measure", settings.refresh_interval_s, self._measure, self._hurry))
                loops.create_task(self._every("guard", settings.guard_interval_s, self._guard))
                loops.create_task(self._publish_until_stopped())
                if settings.lends:
                    loops.create_task(self._every("limits", _LIMITS_EVERY_S, self._check_limits))
                    loops.create_task(self._every("settle", _SETTLE_EVERY_S, self._settle))
                    loops.create_task(self._register_when_recovered())
        finally:
            stop_reflectors.set()
            self._event_loop = None

    def unready(self) -> list[str]:
        """What keeps this agent from doing its work, one sentence each. Any thread may ask."""
        problems = list(self._problems.values())
        if self._settings.lends and self._registrar.problem:
            problems.append(self._registrar.problem)
        return problems

    def dead(self) -> list[str]:
        """The watchdog: the event loop or the guard's thread hangs. Any thread may ask."""
        silent_s = time.monotonic() - self._guard_at_s
        return [f"the guard has not looked for {silent_s:.0f} s"] if silent_s > _WATCHDOG_S else []

    def _reading_age_s(self) -> float:
        return -1.0 if self._survey is None else time.monotonic() - self._survey.at_s

    def _wake(self) -> None:
        """From a reflector's thread: something changed, look again soon."""
        loop = self._event_loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(self._hurry.set)

    async def _every(
        self, name: str, interval_s: float, turn: Callable[[], Awaitable[None]], hurry: asyncio.Event | None = None
    ) -> None:
        """Take turns until the end, ``interval_s`` apart, or sooner when ``hurry`` is set."""
        while not self._stop.is_set():
            began_s = time.monotonic()
            try:
                await turn()
            except Unavailable as error:
                self._metrics.loop_failures.labels(name).inc()
                self._speaker.once(name, str(error), partial(_LOG.warning, "%s", error, extra=kv(loop=name)))
            except Exception:  # noqa: BLE001  one broad catch per turn; logged and counted
                self._metrics.loop_failures.labels(name).inc()
                _LOG.exception("a turn failed", extra=kv(loop=name))
            took_s = time.monotonic() - began_s
            self._metrics.loop_seconds.labels(name).observe(took_s)
            if hurry is None:
                await self._pause(interval_s - took_s)
            else:
                await self._pause(_HURRY_SPACING_S)
                await self._pause(interval_s - took_s - _HURRY_SPACING_S, hurry)
                hurry.clear()

    async def _pause(self, seconds: float, sooner: asyncio.Event | None = None) -> None:
        """Wait, until the end of the agent or ``sooner`` at most."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._stop, sooner) if event is not None]
        try:
            await asyncio.wait(waits, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _lay_out(self) -> None:
        """Fix the list of block ids by the node's capacity; it stays the same for the life of the agent."""
        while not self._stop.is_set():
            try:
                ids = await asyncio.to_thread(self._block_ids)
            except Unavailable as error:
                self._problems["measure"] = str(error)
                self._metrics.reading_failures.labels("node").inc()
                self._speaker.once("layout", str(error), partial(_LOG.warning, "%s", error))
                await self._pause(self._settings.guard_interval_s)
                self._guard_at_s = time.monotonic()
                continue
            await self._books.replace(Ledger.of(ids))
            _LOG.info("blocks laid out", extra=kv(ids=len(ids), block_size=self._settings.block_size))
            return

    def _block_ids(self) -> dict[str, int]:
        numa = self._tree.numa_memory()
        capacities = {part.id: part.memory.capacity for part in numa} or {0: self._tree.node_memory().capacity}
        return block_ids(capacities, self._settings.block_size)

    # -- measure --------------------------------------------------------------------------------------------------

    async def _measure(self) -> None:
        # 1. Look at everything.
        fresh = True
        try:
            self._survey = await asyncio.to_thread(self._surveyor.survey, self._rounds)
            self._problems.pop("measure", None)
        except Unavailable as error:
            fresh = False
            self._problems["measure"] = str(error)
            complain = partial(_LOG.warning if self._survey else _LOG.info, "no reading: %s", error)
            self._speaker.once("measure", str(error), complain)
        survey = self._survey
        if survey is None:
            return
        # 2. Decide the offer, show it to the kubelet.
        self._offer = next_offer(
            self._offer,
            self._sums(survey.headroom),
            lending=self._settings.lends and survey.headroom.enabled,
            fresh=fresh,
            at_s=time.monotonic(),
            grow_interval_s=self._settings.grow_interval_s,
        )
        held = len(self._books.ledger.held())
        if await self._books.replace(self._books.ledger.offer(self._offer.blocks_by_numa())):
            _LOG.info("offer changed", extra=kv(blocks=self._offer.blocks, held=held))
        # 3. Tell everybody.
        self._show(survey)
        # 4. The ledger rule asks for evictions without the node being over its threshold.
        if fresh and survey.plan.victims:
            await self._evict()

    def _sums(self, headroom: Headroom) -> dict[int, int]:
        """Blocks of the sum by NUMA node, as many as there are ids for at most."""
        ids = Counter(block.numa for block in self._books.ledger.blocks.values())
        if headroom.numa:
            return {part.id: min(part.blocks, ids[part.id]) for part in headroom.numa}
        return {numa: min(headroom.blocks, count) for numa, count in sorted(ids.items())[:1]}

    def _show(self, survey: Survey) -> None:
        self._report_policy(survey.policy_state)
        now = datetime.now(UTC)
        self._avoiding = evict.still_avoiding(self._avoiding, now)
        self._status = render_status(
            survey.headroom,
            survey.plan,
            mode=self._settings.mode,
            time=survey.reading.time,
            now=now,
            offered=self._offer.blocks if self._settings.lends else None,
            avoiding=self._avoiding,
            conditions=self._conditions(survey),
            previous=self._status or self._published,
        )
        self._metrics.show_sum(survey.headroom, survey.reading, survey.plan)
        self._metrics.show_pods(survey.pods, survey.reading)
        self._metrics.show_blocks(self._books.ledger, survey.headroom, self._offer.blocks)
        if is_news(self._published, self._status):
            self._publish_now.set()

    def _conditions(self, survey: Survey) -> list[Condition]:
        """What the agent can and cannot do now, beside lending."""
        measuring, rejected = self._problems.get("measure"), survey.policy_state.problems
        conditions = [
            Condition("Measuring", "False", "Unreadable", f"{measuring}; the last reading stays")
            if measuring
            else Condition("Measuring", "True", "Measuring", f"from cgroup {self._tree.version}"),
            Condition("Configured", "False", "Rejected", f"the last good one holds; {'; '.join(map(str, rejected))}")
            if rejected
            else Condition("Configured", "True", "Accepted", "the newest configuration is in force"),
        ]
        if self._settings.lends:
            problem = self._registrar.problem
            conditions.append(
                Condition("Registered", "False", "NotRegistered", problem)
                if problem
                else Condition("Registered", "True", "Registered", "the kubelet watches our blocks")
            )
        return conditions

    def _report_policy(self, state: PolicyState) -> None:
        """Say once for each bad version of the ConfigMap what is wrong with it."""
        self._metrics.policy_valid.set(0 if state.problems else 1)
        if not state.problems or state.config_map is None:
            self._rejected_version = None
            return
        version = text(state.config_map, "metadata", "resourceVersion")
        if version == self._rejected_version:
            return
        self._rejected_version = version
        self._metrics.policy_rejections.inc()
        sentence = "; ".join(map(str, state.problems))
        _LOG.warning("the configuration cannot be used, the last good one holds", extra=kv(problems=sentence))
        self._speaker.event(
            {"apiVersion": "v1", "kind": "ConfigMap", **state.config_map},
            "ColocationConfigRejected",
            f"node {self._settings.node_name} keeps the last good configuration: {sentence}",
            kind="Warning",
        )

    # -- guard ----------------------------------------------------------------------------------------------------

    async def _guard(self) -> None:
        """The cheap look at the node's use, and all that must not wait for a whole survey."""
        self._guard_at_s = time.monotonic()
        survey = self._survey
        if survey is None:
            return
        memory = await asyncio.to_thread(self._tree.node_memory)
        if abs(memory.used - survey.reading.used) >= self._settings.block_size:
            self._hurry.set()
        if not evict.is_over(memory, survey.policy.eviction):
            self._over_since_s = None
            return
        if self._over_since_s is None:
            self._over_since_s = self._guard_at_s
            _LOG.warning("memory is over the eviction threshold", extra=kv(used=memory.used, capacity=memory.capacity))
        self._hurry.set()
        await self._evict()

    async def _evict(self) -> None:
        """A round of evictions, unless one is running or the last one has not shown its effect yet."""
        if not self._settings.lends or self._round.locked():
            return
        async with self._round:
            if evict.is_cooling(self._rounds, time.monotonic(), self._settings.eviction_cooling_s):
                return
            self._rounds, gone = await asyncio.to_thread(self._evictor.round, self._rounds, self._over_since_s)
        until = datetime.now(UTC) + timedelta(seconds=self._settings.avoid_for_s)
        for one in gone:
            self._hurry.set()
            if one.pod.owner is not None:
                self._avoiding = evict.avoid(self._avoiding, one.pod.owner.uid, until, one.reason)

    async def _check_limits(self) -> None:
        await asyncio.to_thread(self._limiter.check)

    # -- settle ---------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Ask the kubelet who holds what: each refresh, and soon after it has allocated something."""
        began_s, allocations = time.monotonic(), self._books.allocations
        is_due = began_s - self._settled_at_s >= self._settings.refresh_interval_s
        if self._recovered.is_set() and allocations == self._settled_allocations and not is_due:
            return
        evidence = await self._hear_witnesses()
        settlement = settle(self._books.ledger.held(), evidence)
        if settlement is None:
            return
        for doubt in settlement.doubts:
            self._speaker.once("ledger", doubt, partial(_LOG.warning, "%s", doubt))
        ledger = self._books.ledger.settle(settlement.holders, settlement.gone)
        for broken in check_invariants(ledger, self._books.ledger.blocks):
            _LOG.error("the ledger is broken", extra=kv(invariant=broken))
        await self._books.replace(ledger.offer(self._offer.blocks_by_numa()))
        self._settled_at_s, self._settled_allocations = began_s, allocations
        if not self._recovered.is_set():
            self._recovered.set()
            from_kubelet = evidence.listing is not None
            _LOG.info("recovered", extra=kv(held=len(ledger.held()), from_kubelet=from_kubelet))
        await self._compare_with_kubelet()

    async def _hear_witnesses(self) -> Evidence:
        listed_at_s, listing, checkpoint = time.monotonic(), None, None
        try:
            listing = await kubelet.list_pod_resources(self._settings.pod_resources_socket, names.RESOURCE)
            self._problems.pop("settle", None)
        except Unavailable as error:
            self._metrics.reading_failures.labels("kubelet").inc()
            self._problems["settle"] = f"the kubelet's list of blocks in use cannot be had: {error}"
            self._speaker.once("settle", str(error), partial(_LOG.warning, "%s", self._problems["settle"]))
        file = self._settings.checkpoint_file
        try:
            checkpoint = await asyncio.to_thread(kubelet.read_checkpoint, file, names.RESOURCE)
        except Unavailable as error:
            self._metrics.reading_failures.labels("checkpoint").inc()
            self._speaker.once("checkpoint", str(error), partial(_LOG.warning, "%s", error))
        return Evidence(listing, listed_at_s, checkpoint, self._api.pods() if self._api.synced else None)

    async def _compare_with_kubelet(self) -> None:
        """Whether the kubelet counts our blocks at all; if not, only another registration helps."""
        healthy = {block.id for block in self._books.ledger.blocks.values() if block.healthy}
        if not healthy or self._registrar.registered_for_s < _COMPARE_AFTER_S:
            return
        with suppress(Unavailable):
            counted = await kubelet.list_allocatable(self._settings.pod_resources_socket, names.RESOURCE)
            if not healthy & set(counted):
                self._registrar.doubt(f"the kubelet counts none of our {len(healthy)} healthy blocks")

    async def _register_when_recovered(self) -> None:
        """The kubelet must not hear of a free block before we know which are in use."""
        await self._pause(float("inf"), self._recovered)
        if not self._stop.is_set():
            await self._registrar.run(self._stop)

    # -- publish --------------------------------------------------------------------------------------------------

    async def _publish_until_stopped(self) -> None:
        pauses = iter(_PUBLISH_PAUSES_S)
        remembered = False
        while not self._stop.is_set():
            try:
                if not remembered:
                    await self._remember()
                    remembered = True
                await self._publish()
            except ApiError as error:
                self._metrics.nodeslack_writes.labels("failure").inc()
                pause_s = next(pauses, _PUBLISH_PAUSES_S[-1])
                self._speaker.once("publish", str(error), partial(_LOG.warning, "NodeSlack not written: %s", error))
                await self._pause(pause_s)
                continue
            except Exception:  # noqa: BLE001  one broad catch per turn; logged and counted
                self._metrics.loop_failures.labels("publish").inc()
                _LOG.exception("a turn failed", extra=kv(loop="publish"))
                await self._pause(_PUBLISH_PAUSES_S[-1])
                continue
            pauses = iter(_PUBLISH_PAUSES_S)
            life_s = self._settings.publish_interval_s
            until_life_s = random.uniform(life_s * (1 - _PUBLISH_JITTER), life_s)  # noqa: S311  only spreads agents
            await self._pause(_HURRY_SPACING_S)
            await self._pause(until_life_s, self._publish_now)

    async def _remember(self) -> None:
        """Take over from an earlier life: who is being avoided, and since when conditions hold."""
        found = await asyncio.to_thread(self._nodeslack.read)
        if found is None:
            return
        self._published = mapping(found, "status")
        self._status = None  # whatever was rendered before knew nothing of this
        self._hurry.set()
        try:
            remembered = read_nodeslack(found).avoiding
        except InputError as error:
            _LOG.info("our earlier NodeSlack cannot be read", extra=kv(error=str(error)))
            return
        for entry in evict.still_avoiding(remembered, datetime.now(UTC)):
            self._avoiding = evict.avoid(self._avoiding, entry.owner, entry.until, entry.reason)

    async def _publish(self) -> None:
        self._publish_now.clear()
        status, raw_node = self._status, self._api.raw_node()
        if status is None or raw_node is None:
            return
        await asyncio.to_thread(self._nodeslack.write, status, text(raw_node, "metadata", "uid"))
        self._metrics.nodeslack_writes.labels("success").inc()
        self._published = status
