"""Creates a pod's network namespace: held open by a sleeping process, joined to the node's bridge by a veth pair."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Mapping

from conformance.children import ChildError, check, die_with_parent
from conformance.network import NODE_IP, POD_PREFIX

_numbers = itertools.count(0x101)  # 10.244.1.1 on; upward, so that an address is not used again soon after its pod ended


class PodNetwork:
    def __init__(self) -> None:
        number = next(_numbers)
        self.ip = f"{POD_PREFIX}.{number >> 8 & 255}.{number & 255}"
        self.veth = f"v{number:x}"
        self.holder: asyncio.subprocess.Process | None = None

    def __repr__(self) -> str:
        return f"<PodNetwork {self.ip} holder={self.holder and self.holder.pid}>"

    @property
    def path(self) -> str:
        assert self.holder is not None
        return f"/proc/{self.holder.pid}/ns/net"

    async def start(self, sysctls: Mapping[str, str]) -> None:
        self.holder = await asyncio.create_subprocess_exec(
            "unshare", "--net", "sleep", "infinity", stdin=asyncio.subprocess.DEVNULL, preexec_fn=die_with_parent
        )
        # Until unshare(2) has been called the path is our own namespace, and the veth would land there.
        while os.stat(self.path).st_ino == os.stat("/proc/self/ns/net").st_ino:
            if self.holder.returncode is not None:
                raise ChildError("unshare --net failed")
            await asyncio.sleep(0.005)
        pid = self.holder.pid
        outside = f"link add {self.veth} type veth peer name eth0 netns {pid}\nlink set {self.veth} master br0 up\n"
        await check("ip", "-batch", "-", stdin=outside)
        inside = f"link set lo up\naddr add {self.ip}/16 dev eth0\nlink set eth0 up\nroute add default via {NODE_IP}\n"
        await check("nsenter", f"--net={self.path}", "ip", "-batch", "-", stdin=inside)
        if sysctls:
            script = "".join(f"echo '{value}' > /proc/sys/{name.replace('.', '/')}\n" for name, value in sysctls.items())
            await check("nsenter", f"--net={self.path}", "sh", "-e", stdin=script)

    async def stop(self) -> None:
        if self.holder is not None and self.holder.returncode is None:
            self.holder.kill()
            await self.holder.wait()

    def listens(self) -> bool:
        """Whether anything in the pod listens (TCP) or is bound (UDP)."""
        assert self.holder is not None
        for table, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
            try:
                with open(f"/proc/{self.holder.pid}/net/{table}") as file:
                    rows = [line.split() for line in file][1:]
            except OSError:
                continue
            if any(row[3] == state for row in rows):
                return True
        return False
