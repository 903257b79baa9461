"""The example that `make run` shows: one Gateway, three backends, two of which must not be trusted."""
