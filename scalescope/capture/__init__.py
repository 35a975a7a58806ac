"""What is recorded of a trial."""
