"""A compiled set on one event at a time: from a mapping, an event or JSON text to matches."""
