"""Publications: decoded, stored in the log, and kept at hand."""
