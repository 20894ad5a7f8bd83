"""Engine for nets of few inputs: boxes are decided by affine forms and small linear programs."""
