"""How connections end: the code, the reason, and the last frame."""

from __future__ import annotations

from typing import Final, NamedTuple

from tamis.broker.operations.logs import get_logger
from tamis.errors import DisconnectedError, ProtocolError, RefusedError
from tamis.protocol import Code, Refused
from tamis.protocol.codes import STATUS

LOG: Final = get_logger("tamis.connection")

CLOSED_ABNORMALLY: Final = 1006
INTERNAL_ERROR: Final = 1011
SERVICE_RESTART: Final = 1012
FIRST_PRIVATE_CODE: Final = 4000
"""A refusal closes a connection with this plus its HTTP status: 4401 means unauthenticated."""
# A closing frame holds no more.
MAX_REASON_BYTES: Final = 123


class ConnectionEnd(NamedTuple):
    """How a connection is closed."""

    code: int
    reason: str
    refusal: Refused | None = None


def end_after(error: BaseException) -> ConnectionEnd:
    """Return how a connection ends after an error."""
    match error:
        case DisconnectedError():
            return ConnectionEnd(CLOSED_ABNORMALLY, str(error))
        case RefusedError():
            return refusal_end(error)
        case ProtocolError():
            return refusal_end(RefusedError(Code.BAD_REQUEST, str(error)))
        case _:
            LOG.error("internal error", exc_info=error)
            return ConnectionEnd(INTERNAL_ERROR, "an internal error; the broker's log has details")


def refusal_end(error: RefusedError) -> ConnectionEnd:
    """Return how a connection ends with a refusal."""
    frame = Refused(code=error.code, message=str(error))
    return ConnectionEnd(FIRST_PRIVATE_CODE + STATUS[Code(error.code)], str(error), frame)
