"""What a deployed server signs with, and by what it verifies the others: its state's key and its certificate."""

from __future__ import annotations

import secrets

from spyker.net.channels import read_file
from spyker.net.identity import Identity
from spyker.net.server_config import ServerConfig, learning_digest
from spyker.node.control_messages import ProcessIncarnation
from spyker.node.ed25519_keys import endorse, federation_id, fingerprint, succeed
from spyker.node.event_codec import MembershipOptions
from spyker.node.views import View


def federation_of(config: ServerConfig, *, insecure: bool) -> str:
    """Return what identifies the federation of a server."""
    authorities = b"" if insecure else read_file(config.path(config.deploy.ca), "deploy.ca")
    return federation_id(authorities, learning_digest(config.scenario))


def member_options(
    config: ServerConfig, identity: Identity, view: View, *, new: bool, insecure: bool
) -> MembershipOptions:
    """Return what the membership of a server process is made with.

    Args:
        config: Configuration of the server.
        identity: Its identity, from its state folder.
        view: The first view.
        new: Whether the server is to join running servers.
        insecure: Whether there are no certificates.

    """
    deploy, federation = config.deploy, federation_of(config, insecure=insecure)
    authorities = endorsement = succession = b""
    certificate = ""
    if not insecure:
        chain = read_file(config.path(deploy.certificate), "deploy.certificate")
        key = read_file(config.path(deploy.key), "deploy.key")
        authorities, certificate = read_file(config.path(deploy.ca), "deploy.ca"), fingerprint(chain)
        endorsement = endorse(federation, deploy.server, identity.lineage, chain, key)
    if identity.former_secret:
        succession = succeed(bytes.fromhex(identity.former_secret), federation, deploy.server, identity.lineage)
    return MembershipOptions(
        server=deploy.server,
        view=view,
        incarnation=ProcessIncarnation(identity.incarnation, secrets.token_hex(8)),
        former=identity.former,
        new=new,
        suspect_after=deploy.suspect_after,
        renew_token_after=deploy.renew_token_after,
        remove_after=deploy.remove_after,
        federation=federation,
        authorities=authorities,
        endorsement=endorsement,
        succession=succession,
        clients=deploy.client_address or "",
        certificate=certificate,
        masking=config.scenario.privacy.masking,
    )
