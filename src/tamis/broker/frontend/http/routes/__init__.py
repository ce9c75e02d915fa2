"""The operations of HTTP, by subject."""

from tamis.broker.frontend.http.routes import (
    administration,
    delivery,
    events,
    management,
    subscriptions,
)

OPERATIONS = [
    *events.operations.all,
    *subscriptions.operations.all,
    *delivery.operations.all,
    *management.ROUTES,
    *administration.operations.all,
]

__all__ = ["OPERATIONS"]
