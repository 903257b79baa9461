"""Runs the official suite's test binary in the cluster's network."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from conformance.children import die_with_parent
from conformance.cluster import Cluster
from conformance.network import UNUSABLE_ADDRESS, USABLE_ADDRESS
from conformance.releases import Release
from conformance.results import Output, Result

LONGEST_LINE = 4 << 20  # the suite prints whole objects


def profiles_of(release: Release, features: Sequence[str]) -> list[str]:
    return [profile for profile, feature in release.profiles.items() if feature in features]


@dataclass(frozen=True)
class Suite:
    cluster: Cluster
    gateway_class: str
    profiles: Sequence[str]
    features: Sequence[str] = ()  # empty: the features of GatewayClass.status.supportedFeatures

    async def all(self, report: Path, ended: Callable[[Result], None]) -> tuple[Output, int]:
        return await self._run([f"--report-output={report}"], ended)

    async def one(self, test: str, ended: Callable[[Result], None]) -> tuple[Output, int]:
        """One test alone."""
        return await self._run([f"--run-test={test}"], ended)

    async def _run(self, flags: Sequence[str], ended: Callable[[Result], None]) -> tuple[Output, int]:
        command = [
            str(self.cluster.programs["conformance.test"]),
            "-test.run=TestConformance",
            "-test.v=test2json",  # plain -v holds back the results of subtests until the very end
            "-test.timeout=2h",
            f"--gateway-class={self.gateway_class}",
            f"--conformance-profiles={','.join(self.profiles)}",
            "--cleanup-base-resources=false",  # the next run is quicker; and the cluster ends with us
            f"--usable-address={USABLE_ADDRESS}",
            f"--unusable-address={UNUSABLE_ADDRESS}",
            "--organization=lasthop",
            "--project=lasthop",
            "--url=https://lasthop.dev",
            f"--version=v{version('lasthop')}",
            "--contact=https://lasthop.dev",
            *flags,
        ]
        if self.features:
            command.append(f"--supported-features={','.join(self.features)}")
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)},
            limit=LONGEST_LINE,
            preexec_fn=die_with_parent,
        )
        assert process.stdout is not None
        output = Output()
        with (self.cluster.logs / "suite.log").open("ab", buffering=0) as log:
            async for line in process.stdout:
                log.write(line)
                if result := output.feed(line.decode(errors="replace")):
                    ended(result)
        return output, await process.wait()
