"""A server for an index: a REST API, a search page with explanations, and tools for agents."""
