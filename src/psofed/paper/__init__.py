"""The paper: its figures and claims made again, the resilience matrix, the report."""
