"""Makes what is handed out beside the package: snippets for clients, a bundle, a registry page."""
