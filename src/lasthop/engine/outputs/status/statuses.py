"""All statuses, as outputs of the graph."""

from __future__ import annotations

from typing import Final

from lasthop.engine.outputs.status.crashed import or_crashed
from lasthop.engine.outputs.status.gateways import CLASS_STATUS, GATEWAY_STATUS, LISTENER_SET_STATUS
from lasthop.engine.outputs.status.policies import POLICY_STATUS
from lasthop.engine.outputs.status.routes import ROUTE_STATUS
from lasthop.engine.store.stages import Output

STATUS: Final = (
    *(
        Output(stage.name, stage.domain, or_crashed(stage.value))
        for stage in (CLASS_STATUS, GATEWAY_STATUS, LISTENER_SET_STATUS, *ROUTE_STATUS)
    ),
    *POLICY_STATUS,
)
STATUS_OF: Final = {stage.domain: stage.value for stage in STATUS}
"""The query for the status of each kind."""
