"""Versions of clients and brokers that make a difference, as they stand in every header.

In and out: numbers; the original counts its releases and their snapshots from 0 on. Clients of
other languages send the number of the release they were made for.
"""

V3_0_7_SNAPSHOT = 28
"""From here on clients move their offsets when they are told to (220), and say them (221)."""

V3_1_8_SNAPSHOT = 62
"""From here on clients tell of themselves (307) and consume single messages (309)."""

V4_1_0_SNAPSHOT = 232
"""From here on brokers choose messages by SQL92 and check its expressions (46)."""

V5_0_0 = 413
