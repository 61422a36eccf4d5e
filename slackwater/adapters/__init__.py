"""The I/O of the shared kernel: the API server, files, logs, metrics. Nothing here decides anything."""
