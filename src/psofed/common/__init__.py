"""What every room shares: errors, checks of values, files, and the types they speak of."""
