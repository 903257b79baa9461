"""The example that `make run` shows: one Gateway and three backends, two of them untrustworthy."""
