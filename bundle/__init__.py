"""The build-time library behind nox and invoke: compile, bundle, repack, audit, verify.

Never shipped in a wheel.
"""
