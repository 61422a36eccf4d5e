"""Which blocks a container should get, and what it is told about them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

BLOCKS_VARIABLE = "SLACKWATER_BLOCKS"
BYTES_VARIABLE = "SLACKWATER_BYTES"


def prefer(
    available: Sequence[str], must_include: Sequence[str], size: int, numa_of: Mapping[str, int]
) -> tuple[str, ...]:
    """``size`` of ``available`` with ``must_include`` among them, on as few NUMA nodes as possible.

    The NUMA nodes of the blocks that must be included come first; then the one with the fewest blocks that still hold
    all that is missing (a large hole stays whole for a large pod); where none does, the largest first. Lowest ids
    first. Anything goes as input: the kubelet fills up a short answer, but leaks blocks after an error.
    """
    chosen = list(dict.fromkeys(must_include))[: max(0, size)]
    taken = set(chosen)
    by_numa: dict[int, list[str]] = defaultdict(list)
    for name in sorted(set(available) - taken):
        by_numa[numa_of.get(name, 0)].append(name)
    homes = {numa_of.get(name, 0) for name in chosen}
    while by_numa and len(chosen) < size:
        missing = size - len(chosen)
        numa = min(
            by_numa,
            key=lambda node: (
                node not in homes,
                len(by_numa[node]) < missing,
                len(by_numa[node]) if len(by_numa[node]) >= missing else -len(by_numa[node]),
                node,
            ),
        )
        chosen.extend(by_numa.pop(numa)[:missing])
    return tuple(chosen)


def environment(blocks: int, block_size: int) -> dict[str, str]:
    """What a container with ``blocks`` learns about them. Shells drop variables whose names are no C identifiers."""
    return {BLOCKS_VARIABLE: str(blocks), BYTES_VARIABLE: str(blocks * block_size)}
