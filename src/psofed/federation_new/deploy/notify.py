"""Telling systemd how the server is doing (sd_notify): a datagram to the socket that it names."""

import contextlib
import os
import socket


def notify(*lines: str) -> None:
    """Send lines such as ``READY=1``; does nothing if systemd has not started this process."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
        sender.send("\n".join(lines).encode())
