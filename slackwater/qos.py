"""Quality-of-service classes and priority bands: which class is this pod?

Slackwater's own label decides; Koordinator's label and Katalyst's annotation are read as the same thing where ours is
absent. Where they disagree the native one wins, with a warning. The Kubernetes QoS class plays no part.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from slackwater import names


class Qos(StrEnum):
    """The classes, most protected first."""

    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    SYSTEM = "SYSTEM"
    BE = "BE"


class Band(StrEnum):
    """Bands of ``spec.priority`` (Koordinator's numbers)."""

    PROD = "prod"
    MID = "mid"
    BATCH = "batch"
    FREE = "free"


_BAND_RANGES = {
    Band.PROD: range(9000, 10000),
    Band.MID: range(7000, 8000),
    Band.BATCH: range(5000, 6000),
    Band.FREE: range(3000, 4000),
}
NATIVE_VALUES = ("LSR", "LS", "BE", "SYSTEM")
_KATALYST = {
    "dedicated_cores": Qos.LSR,
    "shared_cores": Qos.LS,
    "reclaimed_cores": Qos.BE,
    "system_cores": Qos.SYSTEM,
}


@dataclass(frozen=True, slots=True)
class QosReading:
    """The class of a pod, the key it was read from, and what was doubtful."""

    qos: Qos | None
    source: str
    warnings: tuple[str, ...]


def read_qos(labels: Mapping[str, str], annotations: Mapping[str, str]) -> QosReading:
    """Read the class from native label, Koordinator label, Katalyst annotation, in that order of weight.

    A value that is not a class counts as absent, with a warning.
    """
    found: list[tuple[str, str, Qos]] = []
    warnings: list[str] = []
    for key, value, table in (
        (names.QOS_LABEL, labels.get(names.QOS_LABEL), {name: Qos(name) for name in NATIVE_VALUES}),
        (
            names.KOORDINATOR_QOS_LABEL,
            labels.get(names.KOORDINATOR_QOS_LABEL),
            {member.value: member for member in Qos},
        ),
        (names.KATALYST_QOS_ANNOTATION, annotations.get(names.KATALYST_QOS_ANNOTATION), _KATALYST),
    ):
        if value is None:
            continue
        if value in table:
            found.append((key, value, table[value]))
        else:
            warnings.append(f"{key}: {value!r} is not a class and is ignored; use one of {', '.join(table)}")
    if not found:
        return QosReading(None, "", tuple(warnings))
    winner_key, winner_value, qos = found[0]
    warnings.extend(
        f"{key}={value} is ignored, because {winner_key}={winner_value} wins"
        for key, value, other in found[1:]
        if other is not qos
    )
    return QosReading(qos, winner_key, tuple(warnings))


def band_of(priority: int | None) -> Band | None:
    """The band of a numeric priority, or None outside every band."""
    if priority is None:
        return None
    return next((band for band, numbers in _BAND_RANGES.items() if priority in numbers), None)
