"""Filters: the IR that all languages and engines share, with its reference semantics."""

from tamis.filters.any_attr import AnyAttr, any_attr
from tamis.filters.boolean import FALSE, TRUE, Filter, Id, all_of, any_of
from tamis.filters.build import Attr, attr
from tamis.filters.limits import FilterLimits
from tamis.filters.modes import Mode

__all__ = [
    "FALSE",
    "TRUE",
    "AnyAttr",
    "Attr",
    "Filter",
    "FilterLimits",
    "Id",
    "Mode",
    "all_of",
    "any_attr",
    "any_of",
    "attr",
]
