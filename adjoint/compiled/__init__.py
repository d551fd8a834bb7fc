"""Whole training steps as native programs: forward, backward, gradients and optimizers at once.

Under construction, and not public: `step.Step` compiles a function whose Python reads nothing that
changes. What it reads is not guarded yet (`docs/architecture.md`: Compiled execution).
"""
