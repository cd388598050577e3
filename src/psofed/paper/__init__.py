"""The paper: its figures and claims reproduced, and the report."""
