"""What Spark needs to run Tamis: a session, Java, errors as sentences, durable records."""
