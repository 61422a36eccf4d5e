"""The scheduler extender: tells a stock kube-scheduler which nodes have blocks for a pod, by their live readings.

``wire`` reads the scheduler's request, ``decide`` answers it from values alone, ``observe`` keeps those values current,
``app`` joins them behind HTTPS. ``explain`` and ``pending`` tell waiting pods why, in words that carry the amounts.
"""
