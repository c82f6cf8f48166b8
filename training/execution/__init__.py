"""Ways to run a training: on a processor or GPUs, in short floats."""
