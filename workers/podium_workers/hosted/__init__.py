"""What adapters of hosted models share, below the one file that each interface has."""
