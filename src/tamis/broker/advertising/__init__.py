"""Advertising: what publishers say they will publish, and whether anybody asks for it."""
