"""Export: a trained network becomes the ONNX file of a bundle."""
