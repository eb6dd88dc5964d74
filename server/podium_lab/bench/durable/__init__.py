"""What the tests of durable runs share: a provider that is paid, and servers that may be killed."""
