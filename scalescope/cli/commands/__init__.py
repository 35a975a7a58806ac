"""The commands, a module for each or for several that belong together; `scalescope.cli.main` registers them."""
