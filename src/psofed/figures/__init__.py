"""The figures of the paper, one small file each."""
