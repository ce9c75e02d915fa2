"""Commands that read, check, compare and try filters, without a broker."""
