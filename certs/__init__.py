"""The installation's own CA and serving certificates: decided in ``decide``, made in ``issue``, kept in ``store``.

A library under the controller, whose leader calls :func:`certs.store.ensure` at its start and every few minutes.
"""
