"""Objects from a cluster, and what is written back to it.

config -> client ─┬─> discovery, reflector ──> objects ──> source        (what is read)
                  ├─> writer <── merge <── statuses of the engine        (what is written, by the leader only)
                  └─> lease (who is the leader), events
"""

from lasthop.sources.kubernetes.client import Client
from lasthop.sources.kubernetes.config import Access, load
from lasthop.sources.kubernetes.errors import ApiError, ConfigError
from lasthop.sources.kubernetes.source import KubernetesSource

__all__ = ["Access", "ApiError", "Client", "ConfigError", "KubernetesSource", "load"]
