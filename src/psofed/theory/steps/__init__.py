"""Maps of the moments in one iteration: the LMS step, the upload, the download."""
