"""The native backend: generated machine code under eager execution; imported when first used."""
