"""A query encoder in C++ for processors with 8-bit products (AVX-512 VNNI), compiled where it runs."""
