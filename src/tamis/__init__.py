"""Tamis: content-based publish/subscribe. Find, for every event, all the filters it satisfies.

Names load at first use, so that `import tamis` is fast and a program pays only for what it uses.
"""

from typing import TYPE_CHECKING

from tamis.lazy import lazy_exports

# What type checkers and editors see, and what Python does; a test compares the two.
if TYPE_CHECKING:
    from tamis.broker.local import LocalBus, open_bus, open_bus_sync
    from tamis.client import (
        Advertisement,
        Bus,
        DataSource,
        Message,
        Missed,
        QueryResult,
        Receipt,
        SyncBus,
        connect,
        connect_sync,
    )
    from tamis.covering import CoveringForest, CoveringIndex, RootChange
    from tamis.diagrams import (
        Answer,
        Comparison,
        Relationship,
        Space,
        compare,
        covers,
        equivalent,
        intersects,
        is_always,
        is_never,
    )
    from tamis.errors import (
        AddressError,
        CloudEventError,
        DisconnectedError,
        EventError,
        FilterError,
        FilterFunctionError,
        FilterStructureError,
        FilterSyntaxError,
        FilterTypeError,
        JSONError,
        LimitError,
        MissingExtraError,
        OptionError,
        RefusedError,
        SchemaError,
        SubscriptionEndedError,
        TamisError,
        XMLError,
    )
    from tamis.events import (
        Attribute,
        Bits,
        CloudEvent,
        Event,
        EventLimits,
        Kind,
        Schema,
        Type,
        attribute,
        decode_cloudevent,
        decode_cloudevent_lines,
        decode_cloudevents,
        decode_json,
        decode_json_lines,
        decode_schema,
        encode_cloudevent,
        encode_cloudevents,
        encode_json,
    )
    from tamis.filters import (
        FALSE,
        TRUE,
        Filter,
        FilterLimits,
        Mode,
        all_of,
        any_attr,
        any_of,
        attr,
    )
    from tamis.filters.simplify import simplify
    from tamis.languages import parse
    from tamis.languages.constraints import Constraint, applies, constraint_filter
    from tamis.matching import Engine, Matches, Subscription
    from tamis.objects import (
        ObjectFilter,
        message,
        message_class,
        object_filter_from_structure,
        object_filter_to_structure,
        register_comparison,
        where,
    )
    from tamis.version import __version__

    __all__ = [
        "FALSE",
        "TRUE",
        "AddressError",
        "Advertisement",
        "Answer",
        "Attribute",
        "Bits",
        "Bus",
        "CloudEvent",
        "CloudEventError",
        "Comparison",
        "Constraint",
        "CoveringForest",
        "CoveringIndex",
        "DataSource",
        "DisconnectedError",
        "Engine",
        "Event",
        "EventError",
        "EventLimits",
        "Filter",
        "FilterError",
        "FilterFunctionError",
        "FilterLimits",
        "FilterStructureError",
        "FilterSyntaxError",
        "FilterTypeError",
        "JSONError",
        "Kind",
        "LimitError",
        "LocalBus",
        "Matches",
        "Message",
        "Missed",
        "MissingExtraError",
        "Mode",
        "ObjectFilter",
        "OptionError",
        "QueryResult",
        "Receipt",
        "RefusedError",
        "Relationship",
        "RootChange",
        "Schema",
        "SchemaError",
        "Space",
        "Subscription",
        "SubscriptionEndedError",
        "SyncBus",
        "TamisError",
        "Type",
        "XMLError",
        "__version__",
        "all_of",
        "any_attr",
        "any_of",
        "applies",
        "attr",
        "attribute",
        "compare",
        "connect",
        "connect_sync",
        "constraint_filter",
        "covers",
        "decode_cloudevent",
        "decode_cloudevent_lines",
        "decode_cloudevents",
        "decode_json",
        "decode_json_lines",
        "decode_schema",
        "encode_cloudevent",
        "encode_cloudevents",
        "encode_json",
        "equivalent",
        "intersects",
        "is_always",
        "is_never",
        "message",
        "message_class",
        "object_filter_from_structure",
        "object_filter_to_structure",
        "open_bus",
        "open_bus_sync",
        "parse",
        "register_comparison",
        "simplify",
        "where",
    ]
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "tamis.broker.local": "LocalBus open_bus open_bus_sync",
            "tamis.client": """
                Advertisement Bus DataSource Message Missed QueryResult Receipt SyncBus connect
                connect_sync
            """,
            "tamis.covering": "CoveringForest CoveringIndex RootChange",
            "tamis.diagrams": """
                Answer Comparison Relationship Space compare covers equivalent intersects
                is_always is_never
            """,
            "tamis.errors": """
                AddressError CloudEventError DisconnectedError EventError FilterError
                FilterFunctionError FilterStructureError FilterSyntaxError FilterTypeError
                JSONError LimitError MissingExtraError OptionError RefusedError SchemaError
                SubscriptionEndedError TamisError XMLError
            """,
            "tamis.events": """
                Attribute Bits CloudEvent Event EventLimits Kind Schema Type attribute
                decode_cloudevent decode_cloudevent_lines decode_cloudevents decode_json
                decode_json_lines decode_schema encode_cloudevent encode_cloudevents
                encode_json
            """,
            "tamis.filters": "FALSE TRUE Filter FilterLimits Mode all_of any_attr any_of attr",
            "tamis.filters.simplify": "simplify",
            "tamis.languages": "parse",
            "tamis.languages.constraints": "Constraint applies constraint_filter",
            "tamis.matching": "Engine Matches Subscription",
            "tamis.objects": """
                ObjectFilter message message_class object_filter_from_structure
                object_filter_to_structure register_comparison where
            """,
            "tamis.version": "__version__",
        },
        {"explain": "Engine.explain(id, event)", "lint": "Engine.lint()"},
    )
