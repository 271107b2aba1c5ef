"""One module a command: HELP, add_arguments, run. Heavy imports stay inside run."""
