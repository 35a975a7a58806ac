"""Where results are kept: SQL for what is queried, Parquet for raw records."""
