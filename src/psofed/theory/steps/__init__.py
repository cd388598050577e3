"""What one iteration does to moments, step by step: the LMS step, the upload, the download."""
