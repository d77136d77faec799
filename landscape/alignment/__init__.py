"""Networks whose units lie in other orders: which may be permuted, which is which, and averages of them repaired."""
