"""Names and formats of the kernel's control groups, v1 and v2. Pure: paths and texts in, values out."""
