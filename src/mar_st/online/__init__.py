"""Query encoders, and the batching of concurrent queries; importing it does not import torch."""

from __future__ import annotations

from mar_st.online.batcher import Batcher, DeadlinePassed, MicroBatcher, QueueFull, chained, check_deadline
from mar_st.online.encoders import load_query_encoder
from mar_st.online.protocol import EncoderError, QueryEncoder, encoder_name, encoder_origin

__all__ = [
    "Batcher",
    "DeadlinePassed",
    "EncoderError",
    "MicroBatcher",
    "QueryEncoder",
    "QueueFull",
    "chained",
    "check_deadline",
    "encoder_name",
    "encoder_origin",
    "load_query_encoder",
]
