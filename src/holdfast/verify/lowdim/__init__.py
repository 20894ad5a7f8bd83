"""Engine for nets of few inputs: boxes settled by affine forms and small linear programs, proven."""
