"""Lookup of the server that answers at an address, by its certificate, for error messages."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

from spyker.net.certificates import SERVER

SECONDS = 5.0


async def server_at(address: str, authority: Path, certificate: Path, key: Path) -> int | None:
    """Return the server that presents a certificate of this deployment at an address, or ``None``."""
    host, _, port = address.rpartition(":")
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=authority)
        context.check_hostname = False  # the name is what is looked for
        context.set_alpn_protocols(["h2"])
        context.load_cert_chain(certificate, key)
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    except (OSError, ssl.SSLError, TimeoutError):
        return None
    certificate_fields = writer.get_extra_info("peercert") or {}
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(SECONDS):
            await writer.wait_closed()
    names = certificate_fields.get("subjectAltName", ())
    found = [SERVER.fullmatch(name) for kind, name in names if kind == "DNS"]
    return next((int(match[1]) for match in found if match), None)
