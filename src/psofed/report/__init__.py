"""Pictures and pages for people. Decibels appear here, and nowhere before."""
