"""How losses are measured: samples, tasks, models in workers, and the hot loop."""
