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
    NOT_A_CONSTANT = "not-a-constant"
    """`null` or `NaN` is read as an attribute."""
    DOUBLE_MINUS = "double-minus"
    HYPHENATED = "hyphenated-name"
    HYPHENATED_NUMBER = "hyphenated-number"
    """A date or a telephone number without quotes subtracts."""
    LEADING_ZERO = "leading-zero"
    PATTERN = "pattern"
    """A wildcard stands where it is none."""
    NETWORK = "quoted-network"
    """A network stands in quotes, so it is a text that no address equals."""
    UNKNOWN_ATTRIBUTE = "unknown-attribute"
    OTHER_KIND = "other-kind"
