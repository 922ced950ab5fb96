"""Cross-encoders that grade pairs: training, and the thresholds between grades, saved with the weights."""
