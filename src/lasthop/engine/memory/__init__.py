"""The engine's memory: marks of ports, earlier verification of hops, and the record of changes.

    memory                          written by                            stored in             read by
    absence marks   policies.py     the source's proofs, settle()         the process           hop_tls: may it be plaintext
    HELD            verification.py settle(), by port                     file or ConfigMap     weakening: findings, statuses
    hops            verification.py settle(), by Gateway and port         file or ConfigMap     the next comparison
    causes          causes.py       apply(), until all hops are compared  the process           edits
    record          record.py       the controller, which has a clock     file or ConfigMap     `lasthop audit --since`

    outputs of settle() ──> VerificationMemory ──┬──> HELD
                                                 └──> edits ──(time, who)──> ChangeRecord ──codec.py──> bytes

Decisions about plaintext never depend on HELD, the hops or the record: a lost or forged record changes reports, never traffic.
Absence marks decide about plaintext, so they are never saved."""
