"""The open index with its encoder: their queues and threads, and reloading in every worker."""
