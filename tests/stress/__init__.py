"""Programs that try to break the device, each run by one command where the wheel is installed: docs/speed.md."""
