"""Limits the content of one file, with reasons. A larger file is rejected with a finding that names the limit.

They replace an API server's limits of requests, so that no file takes memory or time from the objects of other files.
docs/files-mode.md has the same table for users.
"""

from __future__ import annotations

from typing import Final

MAX_OBJECT: Final = 1536 * 1024
"""Bytes of an object as JSON: etcd's limit for a request, and so the API server's."""
MAX_DATA: Final = 1024 * 1024
"""Bytes of data in a ConfigMap or Secret, as in an API server, and in a local file that supplies them."""
MAX_ANNOTATIONS: Final = 256 * 1024
"""Bytes of an object's annotations, as in an API server."""
MAX_FILE: Final = 16 * 1024 * 1024
"""Bytes of a file: ten objects of the largest size, or some 20,000 of the usual size."""
MAX_VALUES: Final = 500_000
"""Mappings, lists and scalars in a file: 10,000 routes have about half as many. Parsing takes some seconds."""
MAX_OBJECTS: Final = 10_000
"""Objects in a file: each is admitted separately, which takes about half a millisecond."""
MAX_DEPTH: Final = 100
"""Levels of nesting. The kinds have at most 20."""
MAX_FOLDERS: Final = 2_000
"""Folders, including linked ones: each is watched, and all are listed again when one is created or removed."""
MAX_FOLDER_DEPTH: Final = 32
"""Levels of subfolders: they are listed by path, and a path has at most 4,096 bytes."""
MAX_TAGS: Final = 100
"""Lines that begin with `%TAG`, a YAML directive that manifests do not use."""
MAX_ALIASED_VALUES: Final = 100_000
"""Values that YAML aliases may add to a file. Normal files stay below a few hundred; a "billion laughs" file does not."""
MAX_ALIASED: Final = MAX_OBJECT
"""Bytes that YAML aliases may add to a file."""
MAX_PROBLEMS: Final = 20
"""Listed problems of one object; with more, the cause is elsewhere."""
MAX_FINDINGS: Final = 100
"""Listed problems of one file. Each is also a log line."""
MAX_MESSAGE: Final = 1000
"""Characters of a problem's message, and of its field."""
MAX_TARGETS: Final = 256
"""Targets read from a rejected BackendTLSPolicy; a valid one has at most 16. With more, the targets count as unknown."""
LARGE_FILE: Final = 64 * 1024
"""Bytes above which a file is read separately, so that others do not wait: some 100 ms."""
