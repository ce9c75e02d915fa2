"""Filters over Python objects: written in Python, checked against classes, run by the engine."""

from tamis.objects.accessors import FAILURES, AccessorFailure, AccessorFailures
from tamis.objects.building import StandIn, message
from tamis.objects.comparing import register_comparison
from tamis.objects.patterns import ObjectFilter
from tamis.objects.reading import where
from tamis.objects.structure import object_filter_from_structure, object_filter_to_structure

__all__ = [
    "FAILURES",
    "AccessorFailure",
    "AccessorFailures",
    "ObjectFilter",
    "StandIn",
    "message",
    "object_filter_from_structure",
    "object_filter_to_structure",
    "register_comparison",
    "where",
]
