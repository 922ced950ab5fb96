"""English MedTEB (arXiv 2507.19407): its 51 tasks, its arithmetic, and snapshots of their data."""
