"""Which of two resourceVersions is the older one."""


def older(version: str, than: str) -> bool:
    """Versions of one kind are decimal numbers in order of time (KEP-5504); others cannot be compared."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
