"""The operations of HTTP, by subject."""

from tamis.broker.frontend.http.routes import (
    administration,
    delivery,
    events,
    filters,
    subscriptions,
)

OPERATIONS = [
    *events.operations.all,
    *subscriptions.operations.all,
    *delivery.operations.all,
    *filters.operations.all,
    *administration.operations.all,
]

__all__ = ["OPERATIONS"]
