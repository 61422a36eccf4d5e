"""Which class a pod has, by three vocabularies of which the native one wins."""

import pytest

from slackwater import names
from slackwater.qos import Band, Qos, band_of, read_qos

OURS, THEIRS, KATALYST = names.QOS_LABEL, names.KOORDINATOR_QOS_LABEL, names.KATALYST_QOS_ANNOTATION


@pytest.mark.parametrize(
    ("labels", "annotations", "qos", "warnings"),
    [
        pytest.param({}, {}, None, 0, id="nothing"),
        pytest.param({OURS: "BE"}, {}, Qos.BE, 0, id="native"),
        pytest.param({THEIRS: "BE"}, {}, Qos.BE, 0, id="koordinator"),
        pytest.param({THEIRS: "LSE"}, {}, Qos.LSE, 0, id="koordinator-lse"),
        pytest.param({OURS: "LSE"}, {}, None, 1, id="lse-is-not-ours"),
        pytest.param({}, {KATALYST: "reclaimed_cores"}, Qos.BE, 0, id="katalyst"),
        pytest.param({}, {KATALYST: "dedicated_cores"}, Qos.LSR, 0, id="katalyst-dedicated"),
        pytest.param({OURS: "LS", THEIRS: "BE"}, {}, Qos.LS, 1, id="native-wins"),
        pytest.param({THEIRS: "LS"}, {KATALYST: "reclaimed_cores"}, Qos.LS, 1, id="koordinator-before-katalyst"),
        pytest.param({OURS: "BE", THEIRS: "BE"}, {}, Qos.BE, 0, id="agreement-is-silent"),
        pytest.param({OURS: "be"}, {}, None, 1, id="case-matters"),
        pytest.param({OURS: "bogus", THEIRS: "BE"}, {}, Qos.BE, 1, id="a-bad-value-counts-as-absent"),
        pytest.param({OURS: ""}, {}, None, 1, id="empty"),
    ],
)
def test_reads_the_class(labels: dict[str, str], annotations: dict[str, str], qos: Qos | None, warnings: int) -> None:
    reading = read_qos(labels, annotations)
    assert (reading.qos, len(reading.warnings)) == (qos, warnings)


@pytest.mark.parametrize(
    ("priority", "band"),
    [
        (None, None), (0, None), (2999, None), (3000, Band.FREE), (3999, Band.FREE), (4000, None), (5000, Band.BATCH),
        (5999, Band.BATCH), (7000, Band.MID), (7999, Band.MID), (9000, Band.PROD), (9999, Band.PROD), (10000, None),
        (-5, None), (2_000_000_000, None),
    ],
)  # fmt: skip
def test_bands_of_priority(priority: int | None, band: Band | None) -> None:
    assert band_of(priority) is band
