"""Text for people: printable characters, suggestions, terminals."""
