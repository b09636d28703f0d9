"""Lansis: reliable, causally and totally ordered multicast in one broadcast domain.

`lansis.Lansis` is the machine (no sockets, no clock); `udp` is the only module with sockets.
"""
