"""Work pools that Prefect does not have: each runs flow runs on a system of its own."""
