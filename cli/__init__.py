"""The hand tools ``slackwater`` and ``kubectl slackwater``: they call the components' decisions and decide nothing."""
