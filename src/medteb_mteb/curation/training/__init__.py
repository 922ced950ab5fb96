"""Training sets: triples by two-list judging, alignment sets, and the round-trip consistency filter."""

from __future__ import annotations

from medteb_mteb.curation.training.alignment import AlignmentReport, Weighted, alignment_sets, weighted
from medteb_mteb.curation.training.leaks import HeldOut, read_held_out, training_queries, training_texts
from medteb_mteb.curation.training.plan import TwoLists
from medteb_mteb.curation.training.round_trip import RoundTrip, RoundTripReport, round_trip
from medteb_mteb.curation.training.triples import TriplesReport, estimate_triples, make_triples

__all__ = [
    "AlignmentReport",
    "HeldOut",
    "RoundTrip",
    "RoundTripReport",
    "TriplesReport",
    "TwoLists",
    "Weighted",
    "alignment_sets",
    "estimate_triples",
    "make_triples",
    "read_held_out",
    "round_trip",
    "training_queries",
    "training_texts",
    "weighted",
]
