"""Training sets: triples by two-list judging, alignment sets, and the round-trip consistency filter."""

from __future__ import annotations

from medteb_mteb.curation.training.leaks import HeldOut, read_held_out, training_queries, training_texts
from medteb_mteb.curation.training.pairs import PAIRS, PairsSettings, alignment_sets
from medteb_mteb.curation.training.round_trip import ROUND_TRIP, RoundTripSettings, round_trip
from medteb_mteb.curation.training.triples import TRIPLES, TriplesSettings, make_triples

__all__ = [
    "PAIRS",
    "ROUND_TRIP",
    "TRIPLES",
    "HeldOut",
    "PairsSettings",
    "RoundTripSettings",
    "TriplesSettings",
    "alignment_sets",
    "make_triples",
    "read_held_out",
    "round_trip",
    "training_queries",
    "training_texts",
]
