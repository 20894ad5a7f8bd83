"""Every position of a patch, exactly: what a single-object detector says with the patch at each of them."""
