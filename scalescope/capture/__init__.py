"""Records of a trial."""
