"""The command line: options in, runs and studies of the library out."""
