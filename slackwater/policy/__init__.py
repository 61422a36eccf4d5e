"""What operators may configure, parsed from the formats they already have. Pure: text in, values or problems out."""
