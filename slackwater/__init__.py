"""The shared kernel of Slackwater: values and pure decisions, and under ``adapters`` the I/O.

Everything outside ``slackwater.adapters`` computes values from values: no files, no sockets, no clocks
(``now`` is an argument), no logging. That is kept by import-linter, and it is why the command line, the
dry run and production give the same answers.
"""
