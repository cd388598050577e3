"""Errors between a node and a server, by what a node can do about them."""

from psofed.common.errors import PsofedError


class UnknownKeyError(PsofedError):
    """The server does not know this node's key."""


class WrongAuthorityError(PsofedError):
    """The server's certificate was not signed by the authority that the node trusts."""


class StillOnlineError(PsofedError):
    """The server considers this node online already."""


class UnreachableError(PsofedError):
    """The server does not answer, or not as it should; it may do so later."""


class ForgottenError(PsofedError):
    """The server no longer knows this connection: it was restarted, or the node was away for too long."""


class NotRunningError(PsofedError):
    """The run that a message belongs to has ended."""


class BadMessageError(PsofedError):
    """The server sent something that no honest server sends; the node ignores it."""
