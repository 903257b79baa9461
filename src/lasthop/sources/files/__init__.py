"""Objects from a folder of YAML files, admitted as an API server would admit them.

folder -> text -> admitted objects   -> in force -> Batch
                  admission, content    in_force    loader, source
"""

from lasthop.sources.files.folder import FilesError
from lasthop.sources.files.source import FilesSource

__all__ = ["FilesError", "FilesSource"]
