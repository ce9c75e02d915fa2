"""Languages: each a small front end from text to the filter IR."""

from tamis.languages.registry import LANGUAGES, parse

__all__ = ["LANGUAGES", "parse"]
