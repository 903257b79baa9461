"""Limits how much one file may contain, and says why. A larger file is rejected with a finding that names the limit.

An API server protects itself by limits on requests; these take their place in a folder, so that no file, by mistake or on
purpose, takes memory or time from the objects of other files. docs/files-mode.md has the same table for users.
"""

from __future__ import annotations

from typing import Final

MAX_OBJECT: Final = 1536 * 1024
"""Bytes of an object as JSON: what etcd takes in a request, and so an API server."""
MAX_DATA: Final = 1024 * 1024
"""Bytes in a ConfigMap or Secret together, as in an API server; and in a local file, which can only go there."""
MAX_ANNOTATIONS: Final = 256 * 1024
"""Bytes of annotations of an object, as in an API server."""
MAX_FILE: Final = 16 * 1024 * 1024
"""Bytes of a file: ten objects of the largest size, or some 20,000 of the usual one."""
MAX_VALUES: Final = 500_000
"""Mappings, lists and scalars in a file: 10,000 routes have about half as many. To parse them takes some seconds."""
MAX_OBJECTS: Final = 10_000
"""Objects in a file: each is admitted by itself, which takes about half a millisecond."""
MAX_DEPTH: Final = 100
"""Levels of nesting. The kinds have at most 20."""
MAX_FOLDERS: Final = 2_000
"""Folders, linked ones included: each is watched, and all are listed again when one of them comes or goes."""
MAX_FOLDER_DEPTH: Final = 32
"""Levels of subfolders. They are listed by path, and a path has at most 4,096 bytes."""
MAX_TAGS: Final = 100
"""Lines that begin with `%TAG`, a directive of YAML. Manifests have none."""
MAX_ALIASED_VALUES: Final = 100_000
"""Values that YAML aliases may add to a file. Honest files stay below a few hundred; a "billion laughs" file does not."""
MAX_ALIASED: Final = MAX_OBJECT
"""Bytes that YAML aliases may add to a file."""
MAX_PROBLEMS: Final = 20
"""Problems of one object that are listed; with so many the cause is elsewhere."""
MAX_FINDINGS: Final = 100
"""Problems of one file that are listed: each is also a line in the log."""
MAX_MESSAGE: Final = 1000
"""Characters of a problem's message, and of the field that it names."""
MAX_TARGETS: Final = 256
"""Targets that are read from a rejected BackendTLSPolicy, where a valid one has 16; with more, they count as unknown."""
LARGE_FILE: Final = 64 * 1024
"""Bytes above which a file is read separately, so that others do not wait for it: some 100 ms."""
