"""Commands that run the Spark pipeline."""
