"""Whose certificate is shown at an address: for an error that names who answers where somebody else should."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

from spyker.net.certificates import SERVER

SECONDS = 5.0


async def server_at(address: str, authority: Path, certificate: Path, key: Path) -> int | None:
    """The server that shows a certificate of this deployment there; None if none does."""
    host, _, port = address.rpartition(":")
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=authority)
        context.check_hostname = False  # that is just the question
        context.set_alpn_protocols(["h2"])
        context.load_cert_chain(certificate, key)
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    except (OSError, ssl.SSLError, TimeoutError):
        return None
    shown = writer.get_extra_info("peercert") or {}
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(SECONDS):
            await writer.wait_closed()
    found = [SERVER.fullmatch(name) for kind, name in shown.get("subjectAltName", ()) if kind == "DNS"]
    return next((int(match[1]) for match in found if match), None)
