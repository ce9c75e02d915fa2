"""The rules that filters are checked against."""

from __future__ import annotations

from enum import StrEnum


class LintRule(StrEnum):
    """The rules of the linter."""

    NEVER = "never-true"
    ALWAYS = "always-true"
    SAME = "same"
    COVERED = "covered"
    REDUNDANT = "redundant"
    """A part of a filter never decides."""
    UNQUOTED = "unquoted-text"
    TWO_ATTRIBUTES = "two-attributes"
    """Two attributes are compared, of which one may be a text without quotes."""
    NOT_A_CONSTANT = "not-a-constant"
    """`null` or `NaN` is read as an attribute."""
    DOUBLE_MINUS = "double-minus"
    HYPHENATED = "hyphenated-name"
    PATTERN = "pattern"
    """A wildcard stands where it is none."""
    UNKNOWN_ATTRIBUTE = "unknown-attribute"
    OTHER_KIND = "other-kind"
