"""What a training runs on: processor or GPUs, in which floats, compiled or not, in how many processes."""
