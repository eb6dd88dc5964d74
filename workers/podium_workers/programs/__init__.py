"""Programs on this machine: assistants that the user has, and what a model wrote, in a sandbox."""
