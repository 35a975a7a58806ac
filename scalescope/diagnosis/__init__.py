"""What is wrong with a trial or a sweep, why it is believed, and what to do about it."""
