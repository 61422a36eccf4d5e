"""The admission webhook: which class is this pod, and what does that make of it?

``wire`` reads an AdmissionReview, ``decide`` answers it, ``patch`` turns the answer into RFC 6902 operations; these and
the modules that they use are pure. ``app`` is the HTTP application, ``server`` gunicorn under it, ``context`` keeps the
cluster's profiles, PriorityClasses and namespaces in memory. ``slackwater admit`` calls ``decide`` on files.
"""
