"""Languages: each a small front end from text to the filter IR."""

from tamis.languages.registry import LANGUAGES, QUERY_LANGUAGES, parse, translate

__all__ = ["LANGUAGES", "QUERY_LANGUAGES", "parse", "translate"]
