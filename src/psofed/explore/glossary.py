"""Words of the page and their meaning, as in the documentation's glossary (a test compares them)."""

GLOSSARY = {
    "Byzantine client": "A client that is broken or hostile and may send anything.",
    "Decibel (dB)": "10 · log₁₀ of a ratio. −3 dB is half, −10 dB a tenth. For errors, lower is better.",
    "Dimension D, shared parameters M": "The model has D parameters (weights, coefficients). A participant "
    "exchanges M of them.",
    "Mask": "The M parameters that a participant exchanges in an iteration.",
    "MSD, server MSD": "Mean-square deviation: the squared distance between the server's parameters and the true ones.",
    "MSE, network MSE, test MSE": "Mean squared error of predictions. The network MSE is that of the clients' own "
    "models on their own next samples, a mean over clients. The test MSE is that of the server's model on samples "
    "nobody has learned from.",
    "Participants": "The clients drawn in an iteration to exchange values with the server.",
    "Stepsize (learning rate)": "How far a model moves after each sample. A larger stepsize learns faster and leaves "
    "more noise in the model. Beyond the largest stable one, errors grow without limit.",
}
