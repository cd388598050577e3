"""One iteration as a linear map of moments, in three forms: in full, with pairs eliminated, for given windows."""
