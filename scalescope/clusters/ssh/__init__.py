"""Workers on machines that are reached over SSH."""
