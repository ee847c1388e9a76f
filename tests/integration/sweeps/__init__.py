"""Sweeps over PyTorch's own operator and module databases: what an operator gives on flagos, it gives on the CPU.

The samples, data types, error inputs and tolerances are PyTorch's (torch.testing._internal); nothing of them is copied
here, so that each version of torch brings its own. A test's id is `operator-dtype`; what fails on purpose is listed in
expected.toml, with its reason.
"""
