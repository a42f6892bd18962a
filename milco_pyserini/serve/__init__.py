"""The search and explanation server."""
