"""The online side: query encoders and the batching of concurrent queries. Nothing here imports torch."""

from __future__ import annotations

from mar_st.online.batcher import DeadlinePassed, MicroBatcher, QueueFull
from mar_st.online.load import load_query_encoder
from mar_st.online.protocol import EncoderError, QueryEncoder

__all__ = [
    "DeadlinePassed",
    "EncoderError",
    "MicroBatcher",
    "QueryEncoder",
    "QueueFull",
    "load_query_encoder",
]
