"""Analysis: why a filter matched or not, what would change that, and which filters look wrong."""
