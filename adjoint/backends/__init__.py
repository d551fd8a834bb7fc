"""Array backends: namespaces in the shape of the Python array API standard, plus a few extras."""
