"""What the engine remembers of its past: ports proven to have no policy, and how each hop was verified."""
