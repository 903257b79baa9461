"""Sets the number of examples for property tests with slow examples."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def slow(full: int) -> settings:
    """Settings with a third of the examples in `make test`, and all of them with --hypothesis-profile full, as in CI."""
    number = full // 3 if settings.get_current_profile_name() == "fixed" else full
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=number, deadline=None, suppress_health_check=checks)
