"""Long proofs of relink and restore, started by hand; tests/e2e runs each with a small count."""
