"""The node agent's decisions. Pure: values in, a value out; the time is an argument."""
