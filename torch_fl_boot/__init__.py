"""What runs before torch: it finds the bundle, decides, and loads it. Standard library only, never imports torch.

A package beside torch_fl, since importing any module of torch_fl starts the plugin.
"""
