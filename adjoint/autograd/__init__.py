"""Differentiation: `backward`, `grad`, modes, `Function`, functional transforms, gradcheck.

Source: https://docs.pytorch.org/docs/stable/autograd.html
"""
