"""Revisions, oldest first. They are never changed once released, and never import `schema`, which moves on."""
