"""Query encoders without a transformer: a table of n-gram vectors, looked up and summed."""
