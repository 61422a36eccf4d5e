"""The controller's metrics, each defined once."""

from prometheus_client import Counter, Gauge

LEADER = Gauge("slackwater_controller_leader", "1 while this replica leads.")
FAILURES = Counter("slackwater_controller_failures_total", "Turns or actions that failed.", ["loop"])
CLOCK_AHEAD_SECONDS = Gauge(
    "slackwater_controller_clock_ahead_seconds", "How far the clock leapt ahead; nothing is suspended because of it."
)

OBJECTS = Gauge(
    "slackwater_idle_objects", "Objects that the idle policy reaches, by the last scan's decision.", ["kind", "reason"]
)
SUSPENSIONS = Counter(
    "slackwater_idle_suspensions_total", "Suspensions of idle workloads, done or refused.", ["kind", "result"]
)
RESUMES = Counter("slackwater_idle_resumes_total", "Resumes by a person that were noticed.", ["kind"])
CONFLICTS = Counter("slackwater_idle_conflicts_total", "Objects that changed between decision and action.", ["kind"])
POLICY_VALID = Gauge(
    "slackwater_idle_policy_valid", "0 while the policy text, or this type of it, cannot be used.", ["part"]
)
KIND_READABLE = Gauge("slackwater_idle_kind_readable", "0 while objects of this kind cannot be listed.", ["kind"])
SCAN_SECONDS = Gauge("slackwater_idle_scan_seconds", "Duration of the last scan.", ["kind"])

RULE_WRITES = Counter("slackwater_webhook_rule_writes_total", "Times the webhook's rules were written or repaired.")
RULES_ACTIVE = Gauge("slackwater_webhook_rules_active", "1 while the webhook's rules are in force as wished.")
