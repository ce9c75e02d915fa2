"""Filters over Python objects: written in Python, checked against classes, run by the engine."""

from tamis.objects.accessors import FAILURES, AccessorFailure, AccessorFailures
from tamis.objects.building import StandIn, message
from tamis.objects.codec import decode_object, encode_object, read_object_header
from tamis.objects.comparing import register_comparison
from tamis.objects.message_classes import message_class
from tamis.objects.patterns import ObjectFilter
from tamis.objects.reading import where
from tamis.objects.structure import object_filter_from_structure, object_filter_to_structure

__all__ = [
    "FAILURES",
    "AccessorFailure",
    "AccessorFailures",
    "ObjectFilter",
    "StandIn",
    "decode_object",
    "encode_object",
    "message",
    "message_class",
    "object_filter_from_structure",
    "object_filter_to_structure",
    "read_object_header",
    "register_comparison",
    "where",
]
