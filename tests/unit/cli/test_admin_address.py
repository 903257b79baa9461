"""The address of the admin page of `lasthop run --to`."""

from __future__ import annotations

import contextlib

from lasthop.base.api.addresses import with_port
from lasthop.cli.commands.run import _free_admin
from tests.ports import free_port


def test_gateways_that_start_together_get_an_address_each() -> None:
    wanted = with_port("127.0.0.1", free_port())
    addresses = [_free_admin(wanted) for _ in range(5)]
    with contextlib.ExitStack() as stack:
        for address in addresses:
            assert address.listening
            stack.enter_context(address.listening)
        assert len({address.address for address in addresses}) == 5
