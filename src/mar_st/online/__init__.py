"""Query encoders, and the batching of concurrent queries; importing it does not import torch."""
