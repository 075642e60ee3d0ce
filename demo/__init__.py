"""The demo: what turnlog is for, on a real model that runs offline."""
