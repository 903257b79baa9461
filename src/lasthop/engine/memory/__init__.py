"""The past: what the engine remembers, who writes it, and what depends on it.

    what                            written by                            lives in              read by
    absence marks   policies.py     the source's proofs, settle()         the process           hop_tls: may it be plaintext
    HELD            verification.py settle(), by port                     file or ConfigMap     weakening: findings, statuses
    hops            verification.py settle(), by Gateway and port         file or ConfigMap     the next comparison
    causes          causes.py       apply(), until all hops are compared  the process           edits
    record          record.py       the controller, which has a clock     file or ConfigMap     `lasthop audit --since`

    outputs of settle() ──> VerificationMemory ──┬──> HELD
                                                 └──> edits ──(time, who)──> ChangeRecord ──codec.py──> bytes

Nothing that decides about plaintext depends on HELD, the hops or the record: a lost or forged record changes reports, never
traffic. The absence marks do decide, and are never saved.
"""
