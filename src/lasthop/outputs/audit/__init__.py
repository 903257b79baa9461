"""The answer for whoever wants to know how backends are spoken to."""
