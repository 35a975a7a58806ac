"""Measurements that several causes share, each made once for a trial: one module per kind of evidence."""
