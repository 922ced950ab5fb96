"""Clinical cases from threads of medical forums: screened, verified against guidelines, and settled."""
