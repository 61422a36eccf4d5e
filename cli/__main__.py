"""``python -m cli``: the same program as ``slackwater``."""

from cli.main import main

if __name__ == "__main__":
    main(prog_name="slackwater")
