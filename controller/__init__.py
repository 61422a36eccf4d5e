"""The in-cluster controller: one leader keeps certificates and webhook rules, and suspends idle workloads."""
