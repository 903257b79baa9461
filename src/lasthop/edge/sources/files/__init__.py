"""Reads objects from a folder of YAML files, and admits them as an API server would.

folder -> text -> admitted objects   -> objects in force -> Batch
                  admission, content    object_set          loader, source
"""

from lasthop.edge.sources.files.folder import FilesError
from lasthop.edge.sources.files.source import FilesSource

__all__ = ["FilesError", "FilesSource"]
