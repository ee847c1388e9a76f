"""What tests share: tiny ELF files, wheels made from dicts."""
