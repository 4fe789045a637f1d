"""The write verbs over one pipeline, and the transaction that makes their rows visible."""
