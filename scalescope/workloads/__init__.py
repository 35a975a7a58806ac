"""What is run: importable functions `run(client, **params)` with metadata."""
