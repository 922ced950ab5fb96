"""Existing document spaces, and small query encoders for them.

The vectors of the documents do not change, so an existing index can be used unchanged. A query encoder is
trained to reproduce the teacher's own vectors (LEAF; Stage I of MAR with any teacher), and then, if there are
labelled triples, contrastively against the stored documents (HARNESS-LM, phase three).
"""

from __future__ import annotations

from mar_st.spaces.alignment import align_space
from mar_st.spaces.ladder import Ladder, align_ladder
from mar_st.spaces.options import AlignSettings
from mar_st.spaces.records import MANIFEST
from mar_st.spaces.space import Space, SpaceError, open_teacher

__all__ = [
    "MANIFEST",
    "AlignSettings",
    "Ladder",
    "Space",
    "SpaceError",
    "align_ladder",
    "align_space",
    "open_teacher",
]
