"""Work pools that Prefect lacks; each submits flow runs to one system."""
