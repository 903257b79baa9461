"""What stops files mode altogether; everything smaller is a finding."""

from __future__ import annotations


class FilesError(Exception):
    """The folder or the state directory cannot be used. The message is a sentence for the user."""
