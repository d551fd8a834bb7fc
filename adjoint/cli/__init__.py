"""The command `adjoint`."""
