"""Recording of BlazeFL's simulations."""
