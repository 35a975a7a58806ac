"""What several causes measure in the records of a trial, each once: one module per kind of evidence."""
